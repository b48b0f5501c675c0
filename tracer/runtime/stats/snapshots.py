"""Receives what an arena sends to the host: pinned memory, snapshots of rows, and blocks of single readings in them.

Flags in the pinned memory show the host that a copy has arrived. Events cannot be queried: CUDA forbids it during a
capture in any thread, and the capture would fail.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from stepscope.tracer.runtime.stats import ROW, StatsBlock, cuda_rows
from stepscope.tracer.runtime.stats.cuda_rows import FLAG_WORDS, ROW_WORDS

TABLE_WORDS = 8192
WAIT_S = 300.0


class Owner(Protocol):
    """The part of an arena that a snapshot needs."""

    def flush(self) -> None: ...
    def give_back(self, buffer: Buffer) -> None: ...


class Buffer:
    """Pinned memory that contains flags, then words."""

    def __init__(self, rows: int) -> None:
        import torch

        words = FLAG_WORDS + ROW_WORDS * rows
        with torch.inference_mode(False):
            self._tensor = torch.zeros(words, dtype=torch.int64, device="cpu").pin_memory()
        self.address = self._tensor.data_ptr()
        self.numbers: npt.NDArray[np.int64] = self._tensor.numpy()


class Tables:
    """Tables of views in pinned memory, which the device reads directly; never freed, as graphs may refer to them."""

    def __init__(self) -> None:
        self._pages: list[Any] = []
        self._used = 0
        self._known: dict[tuple[int, ...], int] = {}
        self._lock = threading.Lock()
        self._new_page(TABLE_WORDS)

    def has_room(self, words: int) -> bool:
        """Return whether `words` fit without an allocation."""
        return bool(self._used + words <= self._pages[-1].numel())

    def address(self, numbers: Sequence[int]) -> int:
        """Return the address of the numbers; not during a capture unless they are known or `has_room`."""
        key = tuple(numbers)
        with self._lock:
            if key not in self._known:
                self._known[key] = self._write(key)
            return self._known[key]

    def _write(self, numbers: tuple[int, ...]) -> int:
        if not self.has_room(len(numbers)):
            self._new_page(max(TABLE_WORDS, len(numbers)))
        page, start = self._pages[-1], self._used
        page.numpy()[start : start + len(numbers)] = numbers
        self._used += len(numbers)
        return int(page.data_ptr()) + 8 * start

    def _new_page(self, words: int) -> None:
        import torch

        with torch.inference_mode(False):
            self._pages.append(torch.zeros(words, dtype=torch.int64, device="cpu").pin_memory())
        self._used = 0


class Snapshot:
    """Rows that are being filled, are being copied to the host, or have arrived. Threads may share it."""

    def __init__(self, arena: Owner) -> None:
        self._arena = arena
        self._buffer: Buffer | None = None
        self._programs = self._words = self._mark = 0
        self._found: npt.NDArray[np.int64] | None = None
        self._rows: npt.NDArray[Any] | None = None
        self._times: npt.NDArray[np.int64] | None = None
        self._lock = threading.Lock()

    def sent(self, buffer: Buffer, programs: int, words: int, mark: int) -> None:
        self._programs, self._words, self._mark = programs, words, mark
        self._buffer = buffer

    def lost(self, rows: int) -> None:
        self._found = np.zeros((rows, ROW_WORDS), np.int64)

    def is_sent(self) -> bool:
        return self._buffer is not None or self._found is not None

    def is_here(self) -> bool:
        return self._found is not None

    def has_come(self) -> bool:
        """Return whether the rows have arrived, without waiting; then release the pinned memory."""
        if self._found is not None:
            return True
        buffer = self._buffer
        if buffer is None or (buffer.numbers[: self._programs] != self._mark).any():
            return False
        with self._lock:
            if self._found is None:
                words = buffer.numbers[FLAG_WORDS : FLAG_WORDS + self._words]
                self._found = words.copy().reshape(-1, ROW_WORDS)
                self._buffer = None
                self._arena.give_back(buffer)
        return True

    def rows(self) -> npt.NDArray[Any] | None:
        """Return all rows as `ROW`s, or None if they have not arrived."""
        if not self.has_come():
            return None
        if self._rows is None and self._found is not None:
            self._rows = cuda_rows.finish(self._found)
        return self._rows

    def times(self) -> npt.NDArray[np.int64] | None:
        """Return the times of all rows as `DeviceBlock.times` does."""
        if self._times is None and self.has_come() and self._found is not None:
            self._times = cuda_rows.times(self._found)
        return self._times

    def wait(self) -> npt.NDArray[Any]:
        """Wait for the rows and return them. Raises TimeoutError as `wait_to_come` does."""
        self.wait_to_come()
        rows = self.rows()
        assert rows is not None
        return rows

    def wait_to_come(self) -> None:
        """Wait for the rows; flush first if necessary. Raises TimeoutError after `WAIT_S`."""
        if not self.is_sent():
            self._arena.flush()
        end, pause = time.monotonic() + WAIT_S, 2e-5
        while not self.has_come():
            if time.monotonic() > end:
                raise TimeoutError(f"the device did not respond for {WAIT_S:.0f} s")
            time.sleep(pause)
            pause = min(1.5 * pause, 2e-4)


class DeviceBlock:
    """The rows of one reading in a snapshot."""

    __slots__ = "_end", "_first", "_snapshot"
    skipped: str | None = None

    def __init__(self, snapshot: Snapshot, first: int, rows: int) -> None:
        self._snapshot, self._first, self._end = snapshot, first, first + rows

    def rows(self) -> npt.NDArray[Any] | None:
        found = self._snapshot.rows()
        return None if found is None else found[self._first : self._end]

    def wait(self) -> npt.NDArray[Any]:
        return self._snapshot.wait()[self._first : self._end]

    def times(self) -> npt.NDArray[np.int64] | None:
        """Return begin and end of the reading of each tensor by the device's clock in ns, shape (n, 2), or None.

        Both are 0 for a tensor without elements.
        """
        found = self._snapshot.times()
        return None if found is None else found[self._first : self._end]


def runs(blocks: Iterable[StatsBlock]) -> list[StatsBlock]:
    """Merge blocks whose rows are consecutive in a snapshot."""
    found: list[StatsBlock] = []
    last: DeviceBlock | None = None
    for block in _single(blocks):
        if type(block) is not DeviceBlock:
            last = None
            found.append(block)
        elif last is not None and block._snapshot is last._snapshot and block._first == last._end:
            last._end = block._end
        else:
            last = DeviceBlock(block._snapshot, block._first, block._end - block._first)
            found.append(last)
    return found


def _single(blocks: Iterable[StatsBlock]) -> Iterator[StatsBlock]:
    for block in blocks:
        inner = None if type(block) is DeviceBlock else getattr(block, "in_order", None)
        if inner is None:
            yield block
        else:
            yield from inner


def finish_together(blocks: Iterable[StatsBlock], wait: bool) -> None:
    """Compute the rows of the blocks' snapshots that have arrived, or with `wait` of all.

    One computation for a thousand rows takes hardly longer than for one. Raises TimeoutError as `Snapshot.wait` does.
    """
    snapshots = dict.fromkeys(block._snapshot for block in blocks if type(block) is DeviceBlock)
    if wait:
        for snapshot in snapshots:
            snapshot.wait_to_come()
    found = [(one, one._found) for one in snapshots if one._rows is None and one.has_come() and one._found is not None]
    if len(found) > 1:
        rows = cuda_rows.finish(np.concatenate([words for _, words in found]))
        first = 0
        for one, words in found:
            one._rows = rows[first : first + len(words)]
            first += len(words)


def joined(blocks: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Concatenate arrays of `ROW`s as bytes; numpy would compare the record dtypes field by field for each array."""
    return np.frombuffer(b"".join(cast("Sequence[bytes]", blocks)), ROW)


class SkippedBlock:
    """A reading that did not take place, for the reason in `skipped`; its rows have NaN and no counts."""

    __slots__ = "_count", "skipped"

    def __init__(self, rows: int, skipped: str) -> None:
        self._count, self.skipped = rows, skipped

    def rows(self) -> npt.NDArray[Any]:
        return cuda_rows.finish(np.zeros((self._count, ROW_WORDS), np.int64))

    def wait(self) -> npt.NDArray[Any]:
        return self.rows()


class CapturedBlock:
    """A reading that is part of a CUDA graph; each snapshot of the graph has a block for it."""

    __slots__ = "_count", "_extent", "_first", "graph"
    skipped: str | None = None

    def __init__(self, graph: weakref.ref[Any] | None, extent: int, first: int, rows: int) -> None:
        self.graph = graph
        self._extent, self._first, self._count = extent, first, rows

    def of(self, snapshots: Sequence[Snapshot]) -> DeviceBlock:
        """Return this reading's rows in `Arena.snapshot`'s result. Raises IndexError if that is another graph's."""
        return DeviceBlock(snapshots[self._extent], self._first, self._count)

    def rows(self) -> npt.NDArray[Any] | None:
        """Return None; `of` returns the rows."""
        return None

    def wait(self) -> npt.NDArray[Any]:
        """Return an empty array; `of` returns the rows."""
        return np.empty(0, ROW)


ReadBlock = DeviceBlock | CapturedBlock | SkippedBlock
