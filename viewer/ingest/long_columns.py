"""Columns of integers of a long log. They lie in temporary files that are mapped into memory, so that the memory that
they take can be let go at any time. Without room for a file they stay in memory."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest.unpack import cache_dir

if TYPE_CHECKING:
    from stepscope.viewer.ingest.columns import Ints

IN_MEMORY_ROWS = 1 << 20
"""Number of rows that a column keeps in memory before it makes a file."""
_BYTES = 8
_ZEROS = bytes(1 << 20)


@dataclass(frozen=True)
class MappedInts:
    """A column that can be read and, if it comes from `room_for`, written at any place."""

    values: Ints
    _map: mmap.mmap | None = None

    def let_go(self) -> None:
        """Release the memory of a mapped column. Its values stay in the file and come back when they are used."""
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)


class LongColumn:
    """A column that grows at its end. It needs no numpy until it is read, because many logs are short."""

    def __init__(self) -> None:
        self._end = array("q")
        self._file: IO[bytes] | None = None
        self._in_file = 0
        self._has_room = True

    def __len__(self) -> int:
        return self._in_file + len(self._end)

    def extend(self, values: Iterable[int]) -> None:
        self._end.extend(values)
        if len(self._end) >= IN_MEMORY_ROWS:
            self._to_file()

    def ints(self) -> MappedInts:
        """Return the column, which must not grow afterwards."""
        import numpy as np

        if self._file is not None and len(self._end):
            self._to_file()
        end = np.frombuffer(self._end, np.int64) if self._end else np.empty(0, np.int64)
        if self._file is None or not self._in_file:
            return MappedInts(end)
        mapped = mmap.mmap(self._file.fileno(), self._in_file * _BYTES, access=mmap.ACCESS_READ)
        found = np.frombuffer(mapped, np.int64)
        return MappedInts(np.concatenate([found, end])) if len(end) else MappedInts(found, mapped)

    def _to_file(self) -> None:
        if not self._has_room:
            return
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=cache_dir())  # noqa: SIM115  # closed with the column
                weakref.finalize(self, self._file.close)
            self._end.tofile(self._file)
            self._file.flush()
        except (OSError, StepscopeError):  # what was written of this part lies behind the rows that count
            self._has_room = False
            return
        self._in_file += len(self._end)
        self._end = array("q")


def room_for(count: int) -> MappedInts:
    """Return a column of so many zeros, which can be written."""
    import numpy as np

    if count < IN_MEMORY_ROWS:
        return MappedInts(np.zeros(count, np.int64))
    try:
        with tempfile.TemporaryFile(dir=cache_dir()) as file:
            _fill(file, count * _BYTES)
            mapped = mmap.mmap(file.fileno(), count * _BYTES)
    except (OSError, StepscopeError):
        return MappedInts(np.zeros(count, np.int64))
    return MappedInts(np.frombuffer(mapped, np.int64), mapped)


def _fill(file: IO[bytes], size: int) -> None:
    """Reserve the room on the disk: to write into a mapped file without room would end the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
        return
    for start in range(0, size, len(_ZEROS)):
        file.write(_ZEROS[: size - start])
    file.flush()
