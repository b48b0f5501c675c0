"""The environment variables of processes that tests start."""

from __future__ import annotations

import os

VECTORS = "TORCHINDUCTOR_VEC_ISA_OK"
"""Set if the compiler supports every vector instruction set of this processor, as `tests.conftest` finds out."""


def without_ours_and_torchs() -> dict[str, str]:
    """Return this process's variables without those of stepscope and PyTorch, except for `VECTORS`."""
    return {
        name: value
        for name, value in os.environ.items()
        if name == VECTORS or not name.startswith(("STEPSCOPE_", "TORCH"))
    }
