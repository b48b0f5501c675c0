"""Handles a failed device, on which nothing can be used or freed any more."""

from __future__ import annotations

import ctypes
import re

from stepscope.tracer.runtime.device.cuda_graphs import loaded_arenas

_SAID_BY_TORCH = re.compile(r"CUDA (?:driver )?error: (.*)")


def failure_in(error: BaseException) -> str | None:
    """Return the CUDA error in the text of `error`, or None if it has none."""
    found = _SAID_BY_TORCH.match(str(error))
    return found[1] if found else None


def never_free(recorder: object) -> None:
    """Keep the device memory of `recorder` until the process ends.

    On a failed device each freed event prints a warning, and a tensor that is freed without a cache throws in a
    destructor (c10's ``uncached_delete``), which would end the process before it can report its error.
    """
    for kept in (recorder, *loaded_arenas()):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
