"""What is left to do once a device has failed: nothing on it can be used or freed any more."""

from __future__ import annotations

import ctypes
import re

from stepscope.tracer.runtime.device.cuda_graphs import loaded_arenas

_SAID_BY_TORCH = re.compile(r"CUDA (?:driver )?error: (.*)")


def failure_in(error: BaseException) -> str | None:
    """What `error` says of a device that has failed; None: it is about something else."""
    found = _SAID_BY_TORCH.match(str(error))
    return found[1] if found else None


def never_free(recorder: object) -> None:
    """Keep what `recorder` has on devices until the process is gone. On a failed device each event that is freed
    prints a warning, and a tensor that is freed without a cache throws in a destructor (c10's ``uncached_delete``),
    which ends the process before it could say what it died of."""
    for kept in (recorder, *loaded_arenas()):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
