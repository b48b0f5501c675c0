"""Keeps device memory that kernels add statistics to, and copies it to the host: one copy per flush, without waiting.

An arena is fixed memory of one device. Eager readings use its rows one after the other; `flush` starts one kernel
that copies the used rows into pinned memory and clears them for the next readings. Readings in a CUDA graph have rows
of their own, which the graph clears when it begins and fills at each replay; `snapshot` copies those.

Streams: a flush waits on the device for all streams that were read on, and the next reading on another stream waits
for the flush. The arena must be flushed before a stream is captured (`Replays`, `on_capture`).
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

from stepscope.tracer.inductor.device_launch import Launcher, capturing_of, raw_stream_of
from stepscope.tracer.runtime.stats.cuda_quick import open_rows
from stepscope.tracer.runtime.stats.cuda_rows import COPY_WORDS, ROW_WORDS
from stepscope.tracer.runtime.stats.snapshots import (
    Buffer,
    CapturedBlock,
    DeviceBlock,
    ReadBlock,
    SkippedBlock,
    Snapshot,
    Tables,
)  # fmt: skip

ROW_BYTES = 8 * ROW_WORDS
EAGER_ROWS, GRAPH_ROWS = 1536, 5120
"""Numbers of rows for eager readings and for CUDA graphs, 988 KiB in total."""
MOST_EXTENT = 256
BUFFERS = 4
NOT_SEEN = "the start of its CUDA graph capture was not seen"
NO_ROOM = "there is no space left for statistics inside CUDA graphs"

_no_graph: Callable[[], Any] = lambda: None  # noqa: E731
_current_graph = _no_graph
_arenas: dict[int, Arena] = {}
_arenas_lock = threading.Lock()


def watch_captures(current: Callable[[], Any] | None) -> None:
    """Set the function that returns the CUDA graph being captured (`Replays.current`); None removes it."""
    global _current_graph
    _current_graph = current or _no_graph


def arena_of(device: int) -> Arena:
    """Return the arena of a device, created at the first call. Raises RuntimeError if that is during a capture."""
    found = _arenas.get(device)
    if found is None:
        with _arenas_lock:
            found = _arenas.get(device) or _arenas.setdefault(device, Arena(device))
    return found


def forget_parent_process() -> None:
    """Forget the arenas in a forked child, which cannot use CUDA memory of its parent."""
    global _arenas_lock
    _arenas_lock = threading.Lock()
    _arenas.clear()


def arenas() -> list[Arena]:
    return list(_arenas.values())


Launch = tuple[Launcher, int, int, tuple[Any, ...]]
"""Kernel, number of programs, first row within the reading, and the arguments after the slots with the tail."""


class Extent(NamedTuple):
    """Consecutive rows of one graph."""

    first: int
    rows: int


class Region:
    """The rows of one CUDA graph."""

    def __init__(self) -> None:
        self.extents: list[Extent] = []
        self.used: list[int] = []
        self.graph: weakref.ref[Any] | None = None


class Arena:
    """The arena of one device; its methods may be called in any thread in which this device is the current one."""

    def __init__(self, device: int) -> None:
        """Allocate the memory, compile the kernels and wait for the device."""
        import torch

        self._is_capturing, self._raw_stream = capturing_of(), raw_stream_of()
        if self._is_capturing():
            raise RuntimeError("statistics on a device cannot begin during the capture of a CUDA graph")
        from stepscope.tracer.runtime.stats import cuda_transfer

        self.device = device
        self._memory = _allocate(device)
        with torch.cuda.device(device):
            self._copy = Launcher(cuda_transfer.copy, {"CLEAR": True, "COPY_WORDS": COPY_WORDS})
            self._look = Launcher(cuda_transfer.copy, {"CLEAR": False, "COPY_WORDS": COPY_WORDS})
            self._clear = Launcher(cuda_transfer.clear, {"COPY_WORDS": COPY_WORDS})
        self._base = self._memory.data_ptr()
        self._lock = threading.RLock()
        self.tables = Tables()
        self.open_rows = open_rows(self._base, ROW_BYTES, EAGER_ROWS)
        """Rows that compiled code uses without the lock, on the stream of the last reading; None without a compiler."""
        self._marks = count(1)
        self._buffers = [_new_buffer() for _ in range(BUFFERS)]
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
        """Do what `read` does for one launch, written out since it runs at each launch; `rest` ends with the tail."""
        stream = self._raw_stream(self.device)
        if self._is_capturing():
            return self._read_captured([(launcher, programs, 0, (table, *addresses, *rest))], rows, stream)
        with self._lock:
            first = self._take(rows, stream)
            launcher.start(
                programs, 1, 1, stream, *launcher.prefix, self._base + first * ROW_BYTES, table, *addresses, *rest
            )
            self._open(stream)
            return DeviceBlock(self._pending, first, rows)

    def read(self, launches: Sequence[Launch], rows: int) -> ReadBlock:
        """Start the kernels of one reading of `rows` rows, and return its block."""
        stream = self._raw_stream(self.device)
        if self._is_capturing():
            return self._read_captured(launches, rows, stream)
        with self._lock:
            first = self._take(rows, stream)
            self._start(launches, stream, self._base + first * ROW_BYTES)
            self._open(stream)
            return DeviceBlock(self._pending, first, rows)

    def flush(self) -> None:
        """Send the rows since the last flush to the host on the current stream, unless that is being captured."""
        if self._is_capturing():
            return
        with self._lock:
            self._close()
            if not self._used:
                return
            import torch

            with torch.cuda.device(self.device):
                self._flush(self._raw_stream(self.device))

    def snapshot(self, graph: Any) -> list[Snapshot] | None:
        """Copy the rows of a CUDA graph on the current stream, that of the replay; None if it has no readings."""
        region = self._regions.get(id(graph))
        if region is None or self._is_capturing():
            return None
        import torch

        with torch.cuda.device(self.device), self._lock:
            stream = self._raw_stream(self.device)
            found = []
            for extent, used in zip(region.extents, region.used, strict=True):
                found.append(Snapshot(self))
                self._send(found[-1], self._look, stream, extent.first, used)
            return found

    def forget(self, graph: Any) -> None:
        """Release the rows of a graph that will not be replayed any more."""
        self._release(id(graph))

    def give_back(self, buffer: Buffer) -> None:
        self._buffers.append(buffer)

    def _take(self, rows: int, stream: int) -> int:
        """Return the first of `rows` rows for a reading on a stream."""
        self._close()
        if stream != self._stream:
            self._enter(stream)
        first = self._used
        if first + rows > EAGER_ROWS:
            self._flush(stream)
            self._enter(stream)
            first = 0
        self._used = first + rows
        return first

    def _open(self, stream: int) -> None:
        if self.open_rows is not None:
            self.open_rows.open(stream, self._used, self._pending)

    def _close(self) -> None:
        """Stop compiled code from using rows, and find out how many it has used."""
        used = -1 if self.open_rows is None else self.open_rows.close()
        if used >= 0:
            self._used = used

    def _enter(self, stream: int) -> None:
        """Make the first reading on a stream since the last flush wait on the device until the rows are cleared."""
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
        # Recorded now and not when another stream waits: by then this stream may be under capture.
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
        """Return pinned memory that no copy is writing to."""
        if not self._buffers:
            self._under_way = [snapshot for snapshot in self._under_way if not snapshot.has_come()]
        elif len(self._under_way) > 4 * BUFFERS:
            self._under_way = [snapshot for snapshot in self._under_way if not snapshot.is_here()]
        return self._buffers.pop() if self._buffers else _new_buffer()

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
        """Add rows to a region, more if it has many, after its last ones if possible; None if there is no room."""
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
            found = min(fitting, key=lambda one: one.rows)
            self._free.remove(found)
            new = Extent(found.first, min(wanted, found.rows))
            if new.rows < found.rows:
                self._free.append(Extent(new.first + new.rows, found.rows - new.rows))
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


def _allocate(device: int) -> Any:
    """Allocate zeros that are ready on every stream, in a thread of its own.

    Around warm-up runs the pools of Inductor's CUDA graphs serve what the running thread or its stream allocates, and
    Inductor then checks the owner of each block in them.
    """
    found: list[Any] = []

    def allocate() -> None:
        import torch

        found.append(torch.zeros((EAGER_ROWS + GRAPH_ROWS) * ROW_WORDS, dtype=torch.int64, device=f"cuda:{device}"))
        torch.cuda.synchronize(device)

    thread = threading.Thread(target=allocate, name="stepscope arena")
    thread.start()
    thread.join()
    if not found:
        raise RuntimeError("no device memory for statistics")
    return found[0]


def _new_buffer() -> Buffer:
    return Buffer(max(EAGER_ROWS, GRAPH_ROWS))
