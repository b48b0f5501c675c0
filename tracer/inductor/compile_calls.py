"""Tells what the program has asked of the compiler."""

from __future__ import annotations

import sys


def has_called_compile() -> bool:
    """Return whether `torch.compile` was called with a backend, also if nothing was compiled then. Imports nothing.

    `torch.compiler.disable`, which PyTorch calls itself, passes no backend."""
    eval_frame = sys.modules.get("torch._dynamo.eval_frame")
    backends = getattr(eval_frame, "cached_backends", None) or {}
    return any(backend is not None for backend in backends.values())


def has_loaded_package() -> bool:
    """Return whether a package of AOTInductor was loaded or compiled. Imports nothing.

    `torch._inductor.aoti_load_package` imports this module, and nothing else in PyTorch does."""
    return "torch._inductor.package" in sys.modules
