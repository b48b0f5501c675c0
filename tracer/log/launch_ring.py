"""Writes the launch ring, which shows the launches that began and returned, to a file in shared memory.

The module `ring_format` describes the layout. A launch takes two items of a memoryview; a graph call takes a block,
which is reused once the call is in the log, so that the file stays small. Space on the disk is allocated before it is
used, so that a full disk stops the ring and not the process.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import sys
import threading
from array import array
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from stepscope.tracer.log.shared_pages import allocate, map_over
from stepscope.tracer.log.writer import OwnFile
from stepscope.tracer.schema import ring_format as layout
from stepscope.tracer.schema.ring_format import CALL_WORDS, WORD, CallWord, Form, RingHeader, What

FIRST_BYTES = 1 << 18
_LEAST_WORDS = 32
_END, _STATE = CallWord.END_NS.value, CallWord.STATE.value
_NOTHING, _CALL, _SLOTS = What.NOTHING.value, What.CALL.value, Form.SLOTS.value
_pack_call = struct.Struct(f"@{CALL_WORDS - 2}q").pack_into
_pack_mark = struct.Struct("@4q").pack_into
_kept: list[mmap.mmap] = []
_STATE_NUMBERS = {state: number for number, state in enumerate(layout.STATES)}
_MARK_NUMBERS = {mark: number for number, mark in enumerate(layout.STEP_MARKS)}


def is_blocking() -> bool:
    """Return whether launches of this process wait for their device."""
    return os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0")


def block_words(words: int) -> int:
    """Return the size of a block, in words, for `words` words; there are few sizes, so that blocks are reused."""
    return max(_LEAST_WORDS, 1 << (CALL_WORDS + words - 1).bit_length())


class RingBlock:
    """A part of the ring: views of its words, of the words after those of a call, and of their bytes."""

    __slots__ = ("cells", "data", "tick", "words")

    def __init__(self, view: memoryview) -> None:
        self.words = view.cast("q")
        self.cells = self.words[CALL_WORDS:]
        self.data = view[CALL_WORDS * WORD :]
        self.tick: Any = None
        """Object that writes to `cells` (`stepscope.tracer.runtime.ticks`); None until a call needs one."""

    def describe(self, call: CallInRing, form: int, count: int, first_site: int = 0) -> None:
        """Describe a call that has begun; the block becomes valid for readers with the last word."""
        parent = call.parent.number if call.parent is not None else -1
        words = self.words
        _pack_call(
            words, 2 * WORD, call.number, call.graph, call.function, call.step, call.thread, parent,
            call.start_ns, 0, 0, form, first_site, count, call.stream, call.graph_slot,
        )  # fmt: skip
        words[1] = _CALL


class FunctionShape:
    """The number of launch sites of a graph's function, and the memory that its calls need for them."""

    __slots__ = ("count", "first", "has_loops", "scratch", "words")

    def __init__(self, first: int, count: int, has_loops: bool = False) -> None:
        self.first, self.count, self.has_loops = first, count, has_loops
        self.words = block_words(2 * count)
        self.scratch = memoryview(bytearray(max(2 * WORD * count, WORD))).cast("q")
        """Memory to which calls without a block write."""


class SymbolValues(NamedTuple):
    """Values of some of the numbers that a call computes, in JSON's types; a boolean is an integer here."""

    symbols: tuple[int, ...]
    """Indices into `Graph.symbols`."""
    launches: int
    """Number of launches of the call that had begun."""
    values: tuple[int | float | str | None, ...]


class CallInRing(Protocol):
    """The part of `stepscope.tracer.runtime.calls.GraphCall` that the ring uses."""

    block: RingBlock | None
    cells: memoryview
    number: int
    graph: int
    function: int
    step: int
    thread: int
    state: str
    start_ns: int
    end_ns: int
    stream: int
    graph_slot: int
    rows: list[int]
    parent: Any
    symbol_block: RingBlock | None


class MappingGuard(Protocol):
    """The part of `stepscope.tracer.runtime.ticks` that the ring uses."""

    def guard(self, mapped: mmap.mmap, /) -> None: ...
    def stay_in_front(self) -> None: ...
    def record_signals(self, words: memoryview, number: int, at_ns: int, /) -> None: ...
    def stop_recording_signals(self, words: memoryview, number: int, /) -> None: ...


class LaunchRing:
    """The ring of this process, created at the first graph call or step. It never raises.

    `log` creates the log if necessary and returns its path, or None if there is no log. `say` is called with the
    reason if the ring cannot be created or cannot grow.
    """

    def __init__(self, log: Callable[[], Path | None], say: Callable[[str], None]) -> None:
        self.path: Path | None = None
        self.is_on = True
        self.header: memoryview | None = None
        """Words of the header and of the marks; None if there is no file."""
        self._log, self._say = log, say
        self._free: dict[int, list[RingBlock]] = {}
        self._lock = threading.RLock()
        self._is_carving = self._is_full = False
        self._file: OwnFile | None = None
        self._maps: list[mmap.mmap] = []
        self._segment: memoryview | None = None
        self._used = self._segment_at = self._end = 0
        self._guard: MappingGuard | None = None

    def guard_by(self, guard: MappingGuard) -> None:
        """Let `guard` protect writes to the file from SIGBUS if another process truncates it, and expect signals."""
        with self._lock:
            self._guard = guard
            for mapped in self._maps:
                guard.guard(mapped)
            self.expect_signals()

    def expect_signals(self) -> None:
        """Make signals that end the process write their number to the header, if the program does not handle them."""
        if self._guard is not None and self.header is not None and self.is_on:
            self._guard.record_signals(self.header, RingHeader.SIGNAL, RingHeader.SIGNAL_NS)

    def check_file(self) -> None:
        """Turn the ring off if the file was truncated or replaced, since nobody could read it."""
        if self._guard is not None and self._maps:
            self._guard.stay_in_front()
        if self._file is None or not self.is_on:
            return
        try:
            if self._file.checked().st_size >= self._end:
                return
            why = "another program truncated the launch ring"
        except OSError as error:
            why = f"{error.strerror or error}"
        self.is_on = False
        self._free = {}
        self._say(why)

    @property
    def marks_address(self) -> int:
        """The address of the marks in memory; 0 if there is no file."""
        if not self._maps:
            return 0
        return ctypes.addressof(ctypes.c_char.from_buffer(self._maps[0])) + layout.HEADER_WORDS * WORD

    def begin(self, call: CallInRing, shape: FunctionShape) -> None:
        """Take a block for a call that is about to begin; the call has a number, a step and a thread."""
        block = self._take(shape.words)
        if block is None:
            call.cells = shape.scratch
        else:
            call.block, call.cells = block, block.cells

    def started(self, call: CallInRing, shape: FunctionShape) -> None:
        """Describe a call whose start is known in its block; from now on readers count it."""
        if call.block is not None:
            call.block.describe(call, _SLOTS, shape.count, shape.first)

    def end(self, call: CallInRing, shape: FunctionShape | None = None) -> None:
        """Write that a call of a function has ended, or that the replay of a CUDA graph has been submitted."""
        block = call.block
        if block is None:
            return
        if shape is not None and shape.has_loops:
            block = self._with_rows(call, block)
        words = block.words
        words[_STATE] = _STATE_NUMBERS.get(call.state, 0)
        words[_END] = call.end_ns

    def replay(self, call: CallInRing, sites: bytes) -> None:
        """Describe a replay of a CUDA graph as `call`; `sites` are the launch sites, as words."""
        call.block = self._listing(call, sites, Form.SITES, len(sites) // WORD)

    def symbols(self, call: CallInRing, found: SymbolValues, count: int) -> None:
        """Write values of some of the `count` symbols of a call's graph; those without room are only in the log."""
        if call.block is None:
            return
        block = call.symbol_block
        if block is None:
            block = self._take(block_words(layout.SYMBOL_WORDS * count))
            if block is None:
                return
            block.words[2], block.words[3] = call.number, 0
            block.words[1] = What.SYMBOLS.value
            call.symbol_block = block
        words, known = block.words, block.words[3]
        at = CALL_WORDS + layout.SYMBOL_WORDS * known
        for symbol, value in zip(found.symbols, found.values, strict=True):
            word = layout.word_of(value)
            if word is not None and at + layout.SYMBOL_WORDS <= len(words):
                _pack_mark(words, at * WORD, symbol, found.launches, *word)
                at, known = at + layout.SYMBOL_WORDS, known + 1
        words[3] = known

    def step_mark(self, what: str, who: int, thread: int, ns: int) -> RingBlock | None:
        """Write an event that may have ended a step; its block must be given back when the event is in the log."""
        block = self._take(layout.STEP_WORDS)
        if block is not None:
            _pack_mark(block.words, 2 * WORD, _MARK_NUMBERS[what], who, thread, ns)
            block.words[1] = What.STEP_MARK.value
        return block

    def drop(self, call: CallInRing) -> None:
        """Release the blocks of a call that will not be in the log."""
        if call.block is not None:
            call.block.words[1] = _NOTHING
            call.block.tick = None  # if it is still running, its launches must not become the next call's
            self.give_back(call.block)
            self.give_back(call.symbol_block)
            call.block = call.symbol_block = None

    def give_back(self, block: RingBlock | None) -> None:
        """Release a block whose contents are in the log."""
        if block is not None:
            self._free.setdefault(block.words[0], []).append(block)

    def keep_memory(self) -> None:
        """Keep the memory of the marks until the process ends, since a device may write to it after the recording."""
        _kept.extend(self._maps[:1])

    def log_failed(self, number: int) -> None:
        """Write the error number with which writing the log failed."""
        if self.header is not None and not self.header[RingHeader.WRITE_ERRNO]:  # the first error counts
            self.header[RingHeader.WRITE_ERRNO] = number

    def close(self, keep: bool) -> None:
        """Write that the recording has ended properly, and remove the file unless `keep` is set."""
        self._stop()
        if self.header is not None:
            self.header[RingHeader.ENDED] = 1
        if self.path is not None and not keep:
            with suppress(OSError):
                self.path.unlink()

    def abandon(self) -> None:
        """Leave the file to the parent of a forked child, by mapping other memory at the addresses of running calls."""
        self._stop()
        with suppress(Exception):
            for mapped in self._maps:
                map_over(mapped, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)

    def _stop(self) -> None:
        self.is_on = False
        self._free = {}
        if self._guard is not None and self.header is not None:
            self._guard.stop_recording_signals(self.header, RingHeader.SIGNAL)
        if self._file is not None:
            self._file.close()
            self._file = None

    def _with_rows(self, call: CallInRing, block: RingBlock) -> RingBlock:
        """Replace the block of a call with loops by one that lists each launch."""
        rows = array("q", call.rows[: len(call.rows) // 3 * 3])
        if len(call.rows) % 3 == 2:
            rows.extend([*call.rows[-2:], -1])
        longer = self._listing(call, rows.tobytes(), Form.ROWS, len(rows) // 3)
        if longer is None:
            return block
        block.words[1] = _NOTHING
        self.give_back(block)
        call.block = longer
        return longer

    def _listing(self, call: CallInRing, data: bytes, form: Form, count: int) -> RingBlock | None:
        """Return a block that describes a call and lists its launches, or None if there is no room."""
        block = self._take(block_words(len(data) // WORD))
        if block is not None:
            block.data[: len(data)] = data
            block.describe(call, form.value, count)
        return block

    def _take(self, words: int) -> RingBlock | None:
        """Return a block that is not valid for readers yet, or None if the ring is off or has no room."""
        if not self.is_on:
            return None
        free = self._free.get(words)
        try:
            block = free.pop() if free else self._carve(words)
        except IndexError:  # another thread took the last one
            block = self._carve(words)
        if block is not None:
            block.words[1] = _NOTHING
        return block

    def _carve(self, words: int) -> RingBlock | None:
        with self._lock:
            if self._is_carving or not self.is_on:  # a signal handler runs a graph meanwhile
                return None
            self._is_carving = True
            try:
                return self._new_block(words * WORD)
            except (OSError, ValueError, BufferError) as error:
                self._is_full = True
                if self.header is None:
                    self.close(keep=False)
                else:
                    self.header[RingHeader.LOST_CALLS] += 1
                self._say(f"{getattr(error, 'strerror', None) or error}")
                return None
            finally:
                self._is_carving = False

    def _new_block(self, size: int) -> RingBlock | None:
        if self._used + size > self._end:
            if not self._is_full:
                self._grow(size)
            if self._used + size > self._end:
                if self.header is not None:
                    self.header[RingHeader.LOST_CALLS] += 1
                return None
        assert self._segment is not None
        assert self.header is not None
        at = self._used - self._segment_at
        block = RingBlock(self._segment[at : at + size])
        block.words[0] = size // WORD
        self._used += size
        self.header[RingHeader.USED_BYTES] = self._used - layout.BLOCKS_AT
        return block

    def _grow(self, size: int) -> None:
        """Extend the file. Raises OSError if the disk is full, and ValueError above the maximum size."""
        if self._file is None:
            self._file = self._open()
            if self._file is None:
                return
        first, length = self._end, self._end or FIRST_BYTES
        while length < size + layout.BLOCKS_AT:
            length *= 2
        if first + length > layout.MOST_BYTES:
            raise ValueError(f"more than {layout.MOST_BYTES >> 20} MiB would be needed")
        self._file.checked()
        allocate(self._file.descriptor, first, length)
        segment = mmap.mmap(-1, length)  # a mapping of the file would keep and close a descriptor
        map_over(segment, mmap.MAP_SHARED, self._file.descriptor, first)
        if self._guard is not None:
            self._guard.guard(segment)
        if self._segment is not None and self._used < self._end:  # the rest becomes an empty block
            at = self._used - self._segment_at
            self._segment[at:].cast("q")[0] = (self._end - self._used) // WORD
        self._maps.append(segment)
        if not first:
            self._write_header(segment)
            self.expect_signals()
        self._segment, self._segment_at, self._end = memoryview(segment), first, first + length
        self._used = first or layout.BLOCKS_AT

    def _open(self) -> OwnFile | None:
        log = self._log()
        if log is None or sys.byteorder != "little" or os.name != "posix":
            self.is_on = False
            return None
        self.path = Path(layout.ring_path(log))
        return OwnFile(self.path, os.O_RDWR, 0o400)  # protects it from accidental writes

    def _write_header(self, segment: mmap.mmap) -> None:
        header = memoryview(segment)[: layout.BLOCKS_AT].cast("q")
        header[RingHeader.PID] = os.getpid()
        header[RingHeader.FLAGS] = layout.BLOCKING if is_blocking() else 0
        header[RingHeader.MAGIC] = layout.MAGIC
        self.header = header
