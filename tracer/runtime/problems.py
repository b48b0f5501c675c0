"""Writes what the recorder could not record to the log, and reports it once on standard error."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable
from contextlib import suppress

from stepscope.tracer.log.writer import is_from_handler
from stepscope.tracer.runtime.device.cuda_graphs import loaded_arenas
from stepscope.tracer.schema.constants import CACHED_ESTIMATE, DEVICE_FAILED
from stepscope.tracer.schema.gaps import Failure, Skipped

_SAID_BY_TORCH = re.compile(r"CUDA (?:driver )?error: (.*)")


class Problems:
    """Counts the failures of one recording, and reports each problem once."""

    def __init__(self, write: Callable[[Failure | Skipped], None]) -> None:
        self._write = write
        self._failures: dict[str, int] = {}
        self._reported: set[str] = set()

    @property
    def count(self) -> int:
        """Number of failures of hooks."""
        return sum(self._failures.values())

    def forget(self) -> None:
        """Reset the counts in a forked child."""
        self._failures = {}

    def skipped(self, record: Skipped) -> None:
        """Write `record`, and report the first one of each `what`."""
        self._write(record)
        if record.what not in self._reported and record.what != CACHED_ESTIMATE:
            self._reported.add(record.what)
            self.say(f"not recorded: {record.what}: {record.why}")

    def failed(self, where: str, error: BaseException) -> None:
        """Count a failure of the hook `where`; write and report its first one.

        Raises `error` if a signal handler of the program has raised it.
        """
        if is_from_handler(error):
            raise error
        with suppress(Exception):
            count = self._failures[where] = self._failures.get(where, 0) + 1
            if count > 1:
                return
            failure = failure_in(error)
            if failure is not None:
                self._write(Skipped(where, f"{DEVICE_FAILED}: {failure}"))
                return
            text = f"{type(error).__name__}: {error}"
            self.say(f"the recorder's {where} hook failed ({text}); the program continues")
            self._write(Failure(where, text, count))

    def say(self, text: str) -> None:
        """Print `text` on standard error, once."""
        if text not in self._reported:
            self._reported.add(text)
            with suppress(OSError, ValueError, AttributeError):  # standard error may be closed or gone
                print(f"stepscope: {text}", file=sys.stderr)  # noqa: T201


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
