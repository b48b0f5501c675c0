"""Finds the message of the C++ exception behind a failed call of generated C++ code.

The error of that code names only the call. Since PyTorch 2.13 the shim keeps the message
(torch/csrc/stable/c/shim.h); older versions print it.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from stepscope.tracer.schema.constants import FAILED_CALL

LAST_ERROR = "torch_exception_get_what"
_LIBRARIES = "libtorch_cpu.so", "libtorch_cpu.dylib"


def cause_of(text: str) -> str | None:
    """Return the C++ message behind `text`, the text of this thread's last exception, or None if there is none."""
    torch = sys.modules.get("torch")
    if FAILED_CALL not in text or torch is None:
        return None
    folder = Path(str(torch.__file__)).parent / "lib"
    path = next((folder / name for name in _LIBRARIES if (folder / name).exists()), None)
    if path is None:
        return None
    try:
        last_error = getattr(ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD | os.RTLD_LAZY), LAST_ERROR)
    except (OSError, AttributeError):
        return None
    last_error.restype = ctypes.c_char_p
    said: bytes | None = last_error()
    return said.decode("utf-8", "replace").strip() or None if said else None
