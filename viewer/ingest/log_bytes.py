"""Reads the bytes of a log in pieces that end between records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PIECE_BYTES = 1 << 20


class LogBytes:
    """The first `size` bytes of an open file. Each part is read when it is asked for: reading it copies fewer pages
    through the kernel than mapping it, takes no memory afterwards, and reports a failing disk as an OSError."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor, self._size = descriptor, size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        """Return the bytes of a part without step; fewer if the file has become shorter. Raises OSError."""
        start, stop, _ = part.indices(self._size)
        found = os.pread(self._descriptor, stop - start, start)
        while len(found) < stop - start:
            more = os.pread(self._descriptor, stop - start - len(found), start + len(found))
            if not more:
                break
            found += more
        return found


@contextmanager
def log_bytes(path: Path, size: int) -> Iterator[LogBytes]:
    """Open a log up to the size at which it was found: what is appended meanwhile belongs to the next reading.

    Raises OSError if nothing is left of it.
    """
    with path.open("rb") as file:
        size = min(size, os.fstat(file.fileno()).st_size)
        if not size:
            raise OSError("it became empty while it was read")
        yield LogBytes(file.fileno(), size)


def pieces(data: bytes | LogBytes, piece_bytes: int = PIECE_BYTES) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, piece) of `data`, cut before lines that begin with ``V``, as all records of PyTorch do.

    A piece is longer than `piece_bytes` only if it has no such line. `scan` finds the same records in the pieces.
    """
    size, start = len(data), 0
    while start < size:
        length = piece_bytes
        piece = data[start : start + length]
        while start + length < size and (cut := piece.rfind(b"\nV", 1) + 1) == 0:
            length *= 2
            piece = data[start : start + length]
        if start + length < size:
            piece = piece[:cut]
        if not piece:
            return
        yield start, piece
        start += len(piece)
