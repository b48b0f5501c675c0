"""Environment variables of the processes that tests start."""

from __future__ import annotations

import os

VECTORS = "TORCHINDUCTOR_VEC_ISA_OK"
"""Set where the compiler is known to make code for each vector instruction set of this processor (`tests.conftest`)."""


def without_ours_and_torchs() -> dict[str, str]:
    """This process's variables without stepscope's and PyTorch's, except for `VECTORS`."""
    return {
        name: value
        for name, value in os.environ.items()
        if name == VECTORS or not name.startswith(("STEPSCOPE_", "TORCH"))
    }
