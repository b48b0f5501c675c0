"""Tells whether the program has called `torch.compile`."""

from __future__ import annotations

import sys


def has_called_compile() -> bool:
    """Return whether `torch.compile` was called with a backend, also if nothing was compiled then. Imports nothing."""
    eval_frame = sys.modules.get("torch._dynamo.eval_frame")
    return bool(getattr(eval_frame, "cached_backends", None))
