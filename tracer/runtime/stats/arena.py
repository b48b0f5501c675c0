"""Device memory that kernels add statistics to, and its way to the host: one copy per flush, and no waiting.

An arena is fixed memory of one device. Eager readings take its rows one after the other; `flush` starts one kernel
that copies what was taken into pinned memory and clears it for the next readings. Readings in a CUDA graph have rows
of their own, which the graph clears when it begins and fills anew with each replay; `snapshot` copies those.

The host learns from flags in the pinned memory that a copy has come. Asking an event would be no help: during a
capture on any thread CUDA forbids it, and the capture would fail.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tracer.inductor.device_launch import Launcher, capturing_of, raw_stream_of
from tracer.runtime.stats import ROW, cuda_rows
from tracer.runtime.stats.cuda_rows import COPY_WORDS, FLAG_WORDS, ROW_WORDS

ROW_BYTES = 8 * ROW_WORDS
EAGER_ROWS, GRAPH_ROWS = 1536, 2048
"""504 KiB in all."""
MOST_EXTENT = 256
BUFFERS = 4
TABLE_WORDS = 8192
WAIT_S = 300.0
NOT_SEEN = "its CUDA graph was not seen to begin"
NO_ROOM = "no room is left for statistics inside of CUDA graphs"

_no_graph: Callable[[], Any] = lambda: None  # noqa: E731
_current_graph = _no_graph
_arenas: dict[int, Arena] = {}
_arenas_lock = threading.Lock()


def watch_captures(current: Callable[[], Any] | None) -> None:
    """Sets what says which CUDA graph is being captured (`Replays.current`); None: nothing does."""
    global _current_graph
    _current_graph = current or _no_graph


def arena_of(device: int) -> Arena:
    """The arena of a device. Made at the first call, which must not happen during a capture: raises RuntimeError."""
    found = _arenas.get(device)
    if found is None:
        with _arenas_lock:
            found = _arenas.get(device) or _arenas.setdefault(device, Arena(device))
    return found


def arenas() -> list[Arena]:
    """The arenas that exist."""
    return list(_arenas.values())


class Buffer:
    """Pinned memory: flags, then words."""

    def __init__(self) -> None:
        import torch

        words = FLAG_WORDS + ROW_WORDS * max(EAGER_ROWS, GRAPH_ROWS)
        with torch.inference_mode(False):
            self._tensor = torch.zeros(words, dtype=torch.int64, device="cpu").pin_memory()
        self.address = self._tensor.data_ptr()
        self.numbers: npt.NDArray[np.int64] = self._tensor.numpy()


class Tables:
    """Tables of views in pinned memory, which the device reads where it is. They stay: graphs may refer to them."""

    def __init__(self) -> None:
        self._pages: list[Any] = []
        self._used = 0
        self._known: dict[tuple[int, ...], int] = {}
        self._lock = threading.Lock()

    def address(self, numbers: Sequence[int]) -> int:
        """Where these numbers are. May allocate: not to be called during a capture."""
        key = tuple(numbers)
        with self._lock:
            if key not in self._known:
                self._known[key] = self._write(key)
            return self._known[key]

    def _write(self, numbers: tuple[int, ...]) -> int:
        import torch

        if not self._pages or self._used + len(numbers) > self._pages[-1].numel():
            with torch.inference_mode(False):
                page = torch.zeros(max(TABLE_WORDS, len(numbers)), dtype=torch.int64, device="cpu").pin_memory()
            self._pages.append(page)
            self._used = 0
        page, start = self._pages[-1], self._used
        page.numpy()[start : start + len(numbers)] = numbers
        self._used += len(numbers)
        return int(page.data_ptr()) + 8 * start


class Snapshot:
    """Rows that are being filled, are on their way to the host, or have come. Threads may share it."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._buffer: Buffer | None = None
        self._programs = self._words = self._mark = 0
        self._found: npt.NDArray[np.int64] | None = None
        self._rows: npt.NDArray[Any] | None = None
        self._lock = threading.Lock()

    def sent(self, buffer: Buffer, programs: int, words: int, mark: int) -> None:
        self._programs, self._words, self._mark = programs, words, mark
        self._buffer = buffer

    def lost(self, rows: int) -> None:
        self._found = np.zeros((rows, ROW_WORDS), np.int64)

    def is_sent(self) -> bool:
        return self._buffer is not None or self._found is not None

    def has_come(self) -> bool:
        """Never waits for the device. Gives the pinned memory back as soon as the words are there."""
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
        """All its rows: `ROW`s; None while they have not come."""
        if not self.has_come():
            return None
        if self._rows is None and self._found is not None:
            self._rows = cuda_rows.finish(self._found)
        return self._rows

    def times(self) -> npt.NDArray[np.int64] | None:
        return cuda_rows.times(self._found) if self.has_come() and self._found is not None else None

    def wait(self) -> npt.NDArray[Any]:
        """Flushes if need be. Raises TimeoutError when the device does not answer for `WAIT_S`."""
        if not self.is_sent():
            self._arena.flush()
        end, pause = time.monotonic() + WAIT_S, 2e-5
        while (rows := self.rows()) is None:
            if time.monotonic() > end:
                raise TimeoutError(f"the device has not answered for {WAIT_S:.0f} s")
            time.sleep(pause)
            pause = min(2 * pause, 1e-3)
        return rows


class DeviceBlock:
    """Rows of one reading in a snapshot."""

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
        """Begin and end of the reading of each tensor by the device's clock, ns: shape (n, 2); None like `rows`."""
        found = self._snapshot.times()
        return None if found is None else found[self._first : self._end]


class SkippedBlock:
    """A reading that did not take place: its rows hold NaN and no counts, and `skipped` says why."""

    __slots__ = "_count", "skipped"

    def __init__(self, rows: int, skipped: str) -> None:
        self._count, self.skipped = rows, skipped

    def rows(self) -> npt.NDArray[Any]:
        return cuda_rows.finish(np.zeros((self._count, ROW_WORDS), np.int64))

    def wait(self) -> npt.NDArray[Any]:
        return self.rows()

    def times(self) -> npt.NDArray[np.int64]:
        return np.zeros((self._count, 2), np.int64)


class CapturedBlock:
    """A reading that is part of a CUDA graph: each snapshot of the graph has a block of it."""

    __slots__ = "_count", "_extent", "_first", "graph"
    skipped: str | None = None

    def __init__(self, graph: weakref.ref[Any] | None, extent: int, first: int, rows: int) -> None:
        self.graph = graph
        self._extent, self._first, self._count = extent, first, rows

    def of(self, snapshots: Sequence[Snapshot]) -> DeviceBlock:
        """This reading in what `Arena.snapshot` gave. Raises IndexError when it is of another graph."""
        return DeviceBlock(snapshots[self._extent], self._first, self._count)

    def rows(self) -> npt.NDArray[Any] | None:
        """None: see `of`."""
        return None

    def wait(self) -> npt.NDArray[Any]:
        """An array of no rows: see `of`."""
        return np.empty(0, ROW)


ReadBlock = DeviceBlock | CapturedBlock | SkippedBlock
Launch = tuple[Launcher, int, int, tuple[Any, ...]]
"""Kernel, programs, first row of the reading, arguments after the slots with the launcher's tail."""


class Extent(NamedTuple):
    """Successive rows of one graph."""

    first: int
    rows: int


class Region:
    """The rows of one CUDA graph."""

    def __init__(self) -> None:
        self.extents: list[Extent] = []
        self.used: list[int] = []
        self.graph: weakref.ref[Any] | None = None


class Arena:
    """See above. Its methods may be called on any thread, with the arena's device as the current one."""

    def __init__(self, device: int) -> None:
        """Takes the memory, compiles two kernels and waits for the device."""
        import torch

        self._is_capturing, self._raw_stream = capturing_of(), raw_stream_of()
        if self._is_capturing():
            raise RuntimeError("statistics on a device cannot begin during the capture of a CUDA graph")
        from tracer.runtime.stats import cuda_transfer

        self.device = device
        with torch.cuda.device(device), torch.inference_mode(False):
            rows = EAGER_ROWS + GRAPH_ROWS
            self._memory = torch.zeros(rows * ROW_WORDS, dtype=torch.int64, device=f"cuda:{device}")
            self._copy = Launcher(cuda_transfer.copy, {"CLEAR": True, "COPY_WORDS": COPY_WORDS})
            self._look = Launcher(cuda_transfer.copy, {"CLEAR": False, "COPY_WORDS": COPY_WORDS})
            self._clear = Launcher(cuda_transfer.clear, {"COPY_WORDS": COPY_WORDS})
            torch.cuda.synchronize(device)
        self._base = self._memory.data_ptr()
        self._lock = threading.RLock()
        self.tables = Tables()
        self._marks = count(1)
        self._buffers = [Buffer() for _ in range(BUFFERS)]
        self._under_way: list[Snapshot] = []
        self._pending, self._used = Snapshot(self), 0
        self._stream: int | None = None
        self._streams: set[int] = set()
        self._cleared_on: int | None = None
        self._cleared: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._externals: dict[int, Any] = {}
        self._regions: dict[int, Region] = {}
        self._graph_rows, self._free = EAGER_ROWS, list[Extent]()

    def read_one(
        self, launcher: Launcher, programs: int, rows: int, table: int, addresses: Sequence[int], rest: tuple[int, ...]
    ) -> ReadBlock:
        """`read` with one launch, spelled out: this runs at each launch of a program. `rest` ends with the tail."""
        stream = self._raw_stream(self.device)
        if self._is_capturing():
            return self._read_captured([(launcher, programs, 0, (table, *addresses, *rest))], rows, stream)
        with self._lock:
            if stream != self._stream:
                self._enter(stream)
            first = self._used
            if first + rows > EAGER_ROWS:
                self._flush(stream)
                self._enter(stream)
                first = 0
            self._used = first + rows
            launcher.start(
                programs, 1, 1, stream, *launcher.prefix, self._base + first * ROW_BYTES, table, *addresses, *rest
            )
            return DeviceBlock(self._pending, first, rows)

    def read(self, launches: Sequence[Launch], rows: int) -> ReadBlock:
        """Starts the kernels of one reading."""
        stream = self._raw_stream(self.device)
        if self._is_capturing():
            return self._read_captured(launches, rows, stream)
        with self._lock:
            if stream != self._stream:
                self._enter(stream)
            first = self._used
            if first + rows > EAGER_ROWS:
                self._flush(stream)
                self._enter(stream)
                first = 0
            self._used = first + rows
            self._start(launches, stream, self._base + first * ROW_BYTES)
            return DeviceBlock(self._pending, first, rows)

    def flush(self) -> None:
        """Sends what was read since the last flush to the host, on the current stream. Not during its capture."""
        if not self._used or self._is_capturing():
            return
        import torch

        with torch.cuda.device(self.device), self._lock:
            self._flush(self._raw_stream(self.device))

    def snapshot(self, graph: Any) -> list[Snapshot] | None:
        """Copies the rows of a CUDA graph, on the current stream: that of the replay. None: nothing was captured."""
        region = self._regions.get(id(graph))
        if region is None or self._is_capturing():
            return None
        stream = self._raw_stream(self.device)
        with self._lock:
            found = []
            for extent, used in zip(region.extents, region.used, strict=True):
                found.append(Snapshot(self))
                self._send(found[-1], self._look, stream, extent.first, used)
            return found

    def forget(self, graph: Any) -> None:
        """The rows of a graph that will not be replayed any more may be used by others."""
        self._release(id(graph))

    def give_back(self, buffer: Buffer) -> None:
        self._buffers.append(buffer)

    def _enter(self, stream: int) -> None:
        """The first reading on a stream since the last flush waits for the clearing of the rows (on the device)."""
        self._stream = stream
        if stream in self._streams:
            return
        if self._cleared_on is not None and stream != self._cleared_on:
            self._external(stream).wait_event(self._cleared)
        self._streams.add(stream)

    def _flush(self, stream: int) -> None:
        if not self._used:
            return
        here = self._external(stream)
        for other in self._streams - {stream}:
            here.wait_event(self._external(other).record_event())
        if self._cleared_on is not None and stream != self._cleared_on and stream not in self._streams:
            here.wait_event(self._cleared)
        snapshot, rows = self._pending, self._used
        self._pending, self._used = Snapshot(self), 0
        self._cleared_on, self._stream = stream, None
        self._streams.clear()
        self._send(snapshot, self._copy, stream, 0, rows)
        # Now and not when another stream asks: by then this one may be under capture.
        self._cleared.record(here)

    def _external(self, stream: int) -> Any:
        import torch

        found = self._externals.get(stream)
        if found is None:
            found = torch.cuda.ExternalStream(stream, device=self.device)  # type: ignore[no-untyped-call]
            self._externals[stream] = found
        return found

    def _send(self, snapshot: Snapshot, launcher: Launcher, stream: int, first: int, rows: int) -> None:
        words = rows * ROW_WORDS
        programs, mark = -(-words // COPY_WORDS), next(self._marks)
        try:
            buffer = self._buffer()
            launcher(programs, stream, self._base + first * ROW_BYTES, buffer.address, words, mark)
        except Exception:
            snapshot.lost(rows)
            raise
        snapshot.sent(buffer, programs, words, mark)
        self._under_way.append(snapshot)

    def _buffer(self) -> Buffer:
        """Pinned memory that nothing is on its way to."""
        if not self._buffers:
            self._under_way = [snapshot for snapshot in self._under_way if not snapshot.has_come()]
        elif len(self._under_way) > 4 * BUFFERS:
            self._under_way = [snapshot for snapshot in self._under_way if snapshot._found is None]
        return self._buffers.pop() if self._buffers else Buffer()

    @staticmethod
    def _start(launches: Sequence[Launch], stream: int, slots: int) -> None:
        for launcher, programs, row, arguments in launches:
            launcher.start(programs, 1, 1, stream, *launcher.prefix, slots + row * ROW_BYTES, *arguments)

    def _read_captured(self, launches: Sequence[Launch], rows: int, stream: int) -> CapturedBlock | SkippedBlock:
        graph = _current_graph()
        if graph is None:
            return SkippedBlock(rows, NOT_SEEN)
        with self._lock:
            region = self._regions.get(id(graph)) or self._new_region(graph)
            if not region.extents or region.used[-1] + rows > region.extents[-1].rows:
                new = self._extend(region, rows)
                if new is None:
                    return SkippedBlock(rows, NO_ROOM)
                words = new.rows * ROW_WORDS
                self._clear(-(-words // COPY_WORDS), stream, self._base + new.first * ROW_BYTES, words)
            number, first = len(region.extents) - 1, region.used[-1]
            region.used[-1] += rows
            start = self._base + (region.extents[-1].first + first) * ROW_BYTES
            self._start(launches, stream, start)
            return CapturedBlock(region.graph, number, first, rows)

    def _new_region(self, graph: Any) -> Region:
        region = self._regions[id(graph)] = Region()
        try:
            region.graph = weakref.ref(graph)
            weakref.finalize(graph, self._release, id(graph)).atexit = False
        except TypeError:
            pass
        return region

    def _extend(self, region: Region, rows: int) -> Extent | None:
        """More rows for a graph, the more the more it has; behind its last ones where these are free. The new rows."""
        wanted = max(rows, min(max(32, sum(region.used)), MOST_EXTENT))
        last = region.extents[-1] if region.extents else Extent(-1, 0)
        room = EAGER_ROWS + GRAPH_ROWS - self._graph_rows
        fitting = [extent for extent in self._free if extent.rows >= rows]
        if last.first + last.rows == self._graph_rows and rows <= room:
            new = Extent(self._graph_rows, min(wanted, room))
            region.extents[-1] = Extent(last.first, last.rows + new.rows)
            self._graph_rows += new.rows
            return new
        if fitting:
            new = min(fitting, key=lambda one: one.rows)
            self._free.remove(new)
        elif rows <= room:
            new = Extent(self._graph_rows, min(wanted, room))
            self._graph_rows += new.rows
        else:
            return None
        region.extents.append(new)
        region.used.append(0)
        return new

    def _release(self, number: int) -> None:
        with self._lock:
            region = self._regions.pop(number, None)
            if region is not None:
                self._free.extend(region.extents)
