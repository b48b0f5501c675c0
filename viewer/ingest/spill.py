"""Keeps numpy arrays in a temporary file until the index is written, so that a long log needs little memory."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import IO, Any

import numpy as np

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest.columns import Column
from stepscope.viewer.ingest.unpack import cache_dir

IN_MEMORY_BYTES = 1 << 25
"""Number of bytes that are kept in memory before a file is made."""
Kept = Callable[[], Column]
"""Returns the array that was kept."""


class Spill:
    """The arrays of one log. They stay in memory if there is no room for a file."""

    def __init__(self) -> None:
        self._in_memory = 0
        self._file: IO[bytes] | None = None
        self._is_full = False
        self._lock = Lock()

    def keep(self, column: Column) -> Kept:
        """Keep an array of numbers."""
        if self._is_full or not column.nbytes or self._in_memory + column.nbytes <= IN_MEMORY_BYTES:
            self._in_memory += column.nbytes
            return partial(_same, column)
        try:
            start = self._write(column)
        except (OSError, StepscopeError):
            self._is_full = True
            return partial(_same, column)
        return partial(self._read, start, column.dtype, len(column))

    def _write(self, column: Column) -> int:
        """Write an array and return its offset in the file."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=cache_dir())  # noqa: SIM115  # closed with the spill
            weakref.finalize(self, self._file.close)
        start = self._file.seek(0, os.SEEK_END)
        self._file.write(column.data)
        self._file.flush()
        return start

    def _read(self, start: int, dtype: np.dtype[Any], count: int) -> Column:
        assert self._file is not None
        with self._lock:  # parts are read by several threads
            self._file.seek(start)
            return np.frombuffer(self._file.read(count * dtype.itemsize), dtype)


def _same(column: Column) -> Column:
    return column
