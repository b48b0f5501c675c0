"""Which launches began and returned, and what may have ended a step, in a file that shares its memory with this
process.

The module `ring_format` describes its layout. A launch costs two items of a memoryview; a graph call
takes a block of its own and gives it back once it is in the log, so the file stays small. The room is allocated on the
disk before it is used: a full disk costs the ring, not the process.
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
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from stepscope.tracer.log.writer import OwnFile
from stepscope.tracer.schema import ring_format as layout
from stepscope.tracer.schema.ring_format import CALL_WORDS, WORD, CallWord, Form, Header, What
from stepscope.tracer.symbol_values import SymbolValues

FIRST_BYTES = 1 << 18
_LEAST_WORDS = 32
_END, _STATE = CallWord.END_NS.value, CallWord.STATE.value
_CALL, _NOTHING, _SLOTS = What.CALL.value, What.NOTHING.value, Form.SLOTS.value
_pack_call = struct.Struct(f"@{CALL_WORDS - 2}q").pack_into
_pack_mark = struct.Struct("@4q").pack_into
_MAP_FIXED = 0x10
_kept: list[mmap.mmap] = []
_STATE_NUMBERS = {state: number for number, state in enumerate(layout.STATES)}
_MARK_NUMBERS = {mark: number for number, mark in enumerate(layout.STEP_MARKS)}


class Block:
    """A piece of the ring. Views of one memory: its words, those behind the words of a call, and their bytes."""

    __slots__ = ("cells", "data", "tick", "words")

    def __init__(self, view: memoryview) -> None:
        self.words = view.cast("q")
        self.cells = self.words[CALL_WORDS:]
        self.data = view[CALL_WORDS * WORD :]
        self.tick: Any = None
        """What writes into `cells` (`stepscope.tracer.runtime.ticks`), once a call had need of it."""


class Shape:
    """How many launch sites a function of a graph has, and what its calls need for them."""

    __slots__ = ("count", "first", "has_loops", "scratch", "words")

    def __init__(self, first: int, count: int, has_loops: bool = False) -> None:
        self.first, self.count, self.has_loops = first, count, has_loops
        self.words = _class_of(2 * count)
        self.scratch = memoryview(bytearray(max(2 * WORD * count, WORD))).cast("q")
        """Where calls write that have no block."""


class Call(Protocol):
    """What the ring needs of `stepscope.tracer.runtime.launches.Call`."""

    block: Block | None
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
    symbol_block: Block | None


class Guard(Protocol):
    """What the ring needs of `stepscope.tracer.runtime.ticks`."""

    def guard(self, mapped: mmap.mmap, /) -> None: ...
    def stay_in_front(self) -> None: ...
    def leave_word(self, words: memoryview, number: int, at_ns: int, /) -> None: ...
    def leave_no_word(self, words: memoryview, number: int, /) -> None: ...


class LaunchRing:
    """The ring of this process, made at the first graph call or step. Never raises; `say` is told once why there is
    none, or no more of it.

    `log` gives the path of the log, which it makes if need be; None: there is no log.
    """

    def __init__(self, log: Callable[[], Path | None], say: Callable[[str], None]) -> None:
        self.path: Path | None = None
        self.is_on = True
        self.header: memoryview | None = None
        """Words of the header and of the marks; None: there is no file."""
        self._log, self._say = log, say
        self._free: dict[int, list[Block]] = {}
        self._lock = threading.RLock()
        self._is_carving = self._is_full = False
        self._file: OwnFile | None = None
        self._maps: list[mmap.mmap] = []
        self._segment: memoryview | None = None
        self._used = self._segment_at = self._end = 0
        self._guard: Guard | None = None

    def guard_by(self, guard: Guard) -> None:
        """`guard` keeps whoever writes into a mapping of the file from dying of SIGBUS when another process cuts it,
        and has a signal that ends the process write itself into the header."""
        with self._lock:
            self._guard = guard
            for mapped in self._maps:
                guard.guard(mapped)
            self.expect_signals()

    def expect_signals(self) -> None:
        """Of those for which the program has no handler now."""
        if self._guard is not None and self.header is not None and self.is_on:
            self._guard.leave_word(self.header, Header.SIGNAL, Header.SIGNAL_NS)

    def _expect_no_signals(self) -> None:
        if self._guard is not None and self.header is not None:
            self._guard.leave_no_word(self.header, Header.SIGNAL)

    def check_file(self) -> None:
        """See whether the file is still whole. What was cut off is no reason to go on: nobody could read the rest."""
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
        """Of the marks in memory; 0: there is no file."""
        if not self._maps:
            return 0
        return ctypes.addressof(ctypes.c_char.from_buffer(self._maps[0])) + layout.HEADER_WORDS * WORD

    def begin(self, call: Call, shape: Shape) -> None:
        """A call of a graph is about to begin; it has a number, a step and a thread."""
        block = self._take(shape.words) if self.is_on else None
        if block is None:
            call.cells = shape.scratch
            return
        block.words[1] = _NOTHING
        call.block, call.cells = block, block.cells

    def started(self, call: Call, shape: Shape) -> None:
        """All of it is known, its start too: from now on it counts."""
        if call.block is not None:
            _describe(call.block, call, _SLOTS, shape.count, shape.first)

    def end(self, call: Call, shape: Shape) -> None:
        block = call.block
        if block is None:
            return
        if shape.has_loops:
            block = self._with_rows(call, block)
        words = block.words
        words[_STATE] = _STATE_NUMBERS.get(call.state, 0)
        words[_END] = call.end_ns

    def replay(self, call: Call, sites: bytes) -> None:
        """A CUDA graph is about to be replayed: the launches at `sites`, words, belong to `call`."""
        block = self._take(_class_of(len(sites) // WORD)) if self.is_on else None
        if block is None:
            return
        block.words[1] = _NOTHING
        block.data[: len(sites)] = sites
        _describe(block, call, Form.SITES.value, len(sites) // WORD)
        call.block = block

    def symbols(self, call: Call, found: SymbolValues, count: int) -> None:
        """A call that has a block has come to know some of the `count` symbols of its graph. What finds no room is in
        the log once the call has ended."""
        if call.block is None:
            return
        block = call.symbol_block
        if block is None:
            block = self._take(_class_of(layout.SYMBOL_WORDS * count)) if self.is_on else None
            if block is None:
                return
            block.words[1] = _NOTHING
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

    def step_mark(self, what: str, who: int, thread: int, ns: int) -> Block | None:
        """Something may have ended a step. The block is given back when it is in the log."""
        block = self._take(layout.STEP_WORDS) if self.is_on else None
        if block is not None:
            words = block.words
            words[1] = _NOTHING
            _pack_mark(words, 2 * WORD, _MARK_NUMBERS[what], who, thread, ns)
            words[1] = What.STEP_MARK.value
        return block

    def replayed(self, call: Call) -> None:
        """The replay of a CUDA graph has been submitted."""
        if call.block is not None:
            call.block.words[_STATE] = _STATE_NUMBERS["replayed"]
            call.block.words[_END] = call.end_ns

    def drop(self, call: Call) -> None:
        """A call that will not be in the log."""
        if call.block is not None:
            call.block.words[1] = _NOTHING
            call.block.tick = None  # should it still run, its launches are not the next one's
            self.give_back(call.block)
            self.give_back(call.symbol_block)
            call.block = call.symbol_block = None

    def give_back(self, block: Block | None) -> None:
        """What it says is in the log."""
        if block is not None:
            self._free.setdefault(block.words[0], []).append(block)

    def keep_memory(self) -> None:
        """A device may write into the marks as long as the process lives, also when nothing is recorded any more."""
        _kept.extend(self._maps[:1])

    def log_failed(self, number: int) -> None:
        """The log cannot be written any more."""
        if self.header is not None and not self.header[Header.WRITE_ERRNO]:  # the first reason is the one
            self.header[Header.WRITE_ERRNO] = number

    def close(self, keep: bool) -> None:
        """The recorder is left as it should be; the file goes, unless something in it is worth reading."""
        self.is_on = False
        self._free = {}
        self._expect_no_signals()
        if self.header is not None:
            self.header[Header.ENDED] = 1
        if self._file is not None:
            self._file.close()
            self._file = None
        if self.path is not None and not keep:
            with suppress(OSError):
                self.path.unlink()

    def abandon(self) -> None:
        """In a forked child: the file is the parent's. Calls that run in the child now must not write into it, so other
        memory takes its place at the same addresses."""
        self.is_on = False
        self._free = {}
        self._expect_no_signals()
        if self._file is not None:
            self._file.close()
            self._file = None
        with suppress(Exception):
            for mapped in self._maps:
                _map_over(mapped, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)

    def _with_rows(self, call: Call, block: Block) -> Block:
        """The launches of a call whose sites may have run more than once, one by one."""
        rows = array("q", call.rows[: len(call.rows) // 3 * 3])
        if len(call.rows) % 3 == 2:
            rows.extend([*call.rows[-2:], -1])
        longer = self._take(_class_of(len(rows)))
        if longer is None:
            return block
        longer.words[1] = _NOTHING
        longer.data[: len(rows) * WORD] = rows.tobytes()
        _describe(longer, call, Form.ROWS.value, len(rows) // 3)
        block.words[1] = _NOTHING
        self.give_back(block)
        call.block = longer
        return longer

    def _take(self, words: int) -> Block | None:
        free = self._free.get(words)
        if free:
            try:
                return free.pop()
            except IndexError:  # another thread was quicker
                pass
        return self._carve(words)

    def _carve(self, words: int) -> Block | None:
        with self._lock:
            if self._is_carving or not self.is_on:  # a signal handler runs a graph in the midst of this
                return None
            self._is_carving = True
            try:
                return self._new_block(words * WORD)
            except (OSError, ValueError, BufferError) as error:
                self._is_full = True
                if self.header is None:
                    self.close(keep=False)
                else:
                    self.header[Header.LOST_CALLS] += 1
                self._say(f"{getattr(error, 'strerror', None) or error}")
                return None
            finally:
                self._is_carving = False

    def _new_block(self, size: int) -> Block | None:
        if self._used + size > self._end:
            if not self._is_full:
                self._grow(size)
            if self._used + size > self._end:
                if self.header is not None:
                    self.header[Header.LOST_CALLS] += 1
                return None
        assert self._segment is not None
        assert self.header is not None
        at = self._used - self._segment_at
        block = Block(self._segment[at : at + size])
        block.words[0] = size // WORD
        self._used += size
        self.header[Header.USED_BYTES] = self._used - layout.BLOCKS_AT
        return block

    def _grow(self, size: int) -> None:
        """More of the file; raises OSError where there is no room for it."""
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
        _allocate(self._file.descriptor, first, length)
        segment = mmap.mmap(-1, length)  # of the file itself it would keep a descriptor, and close that number
        _map_over(segment, mmap.MAP_SHARED, self._file.descriptor, first)
        if self._guard is not None:
            self._guard.guard(segment)
        if self._segment is not None and self._used < self._end:  # the rest becomes a block of nothing
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
        return OwnFile(self.path, os.O_RDWR, 0o400)  # nobody is to write into it by mistake

    def _write_header(self, segment: mmap.mmap) -> None:
        header = memoryview(segment)[: layout.BLOCKS_AT].cast("q")
        header[Header.PID] = os.getpid()
        header[Header.FLAGS] = layout.BLOCKING if is_blocking() else 0
        header[Header.MAGIC] = layout.MAGIC
        self.header = header


def is_blocking() -> bool:
    """Launches of this process wait for their device."""
    return os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0")


def _class_of(words: int) -> int:
    """Size of the blocks of calls that need so many words: few sizes, so that each is soon used again."""
    return max(_LEAST_WORDS, 1 << (CALL_WORDS + words - 1).bit_length())


def _describe(block: Block, call: Call, form: int, count: int, first_site: int = 0) -> None:
    """Write what is known of a call that has begun. It counts when all is written."""
    parent = call.parent.number if call.parent is not None else -1
    words = block.words
    _pack_call(
        words, 2 * WORD, call.number, call.graph, call.function, call.step, call.thread, parent,
        call.start_ns, 0, 0, form, first_site, count, call.stream, call.graph_slot,
    )  # fmt: skip
    words[1] = _CALL


@cache
def _libc() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    return library


def _map_over(mapped: mmap.mmap, flags: int, descriptor: int, offset: int) -> None:
    """Other memory takes the place of `mapped`, at the same addresses. Raises OSError."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    found = _libc().mmap(
        ctypes.c_void_p(address), ctypes.c_size_t(len(mapped)), mmap.PROT_READ | mmap.PROT_WRITE, flags | _MAP_FIXED,
        descriptor, ctypes.c_long(offset),
    )  # fmt: skip
    if found != address:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _allocate(descriptor: int, first: int, length: int) -> None:
    """Room on the disk. A page that the disk has no room for would kill the process when it is written."""
    allocate = getattr(os, "posix_fallocate", None)
    if allocate is not None:
        with suppress(OSError):
            allocate(descriptor, first, length)
            return
    zeros, at = memoryview(bytes(length)), 0
    while at < length:
        at += os.pwrite(descriptor, zeros[at:], first + at)
