"""The launch ring, a file beside the log of a process: what was running, and what the log does not hold yet.

The recorder writes it through memory that it shares with the file, so it is there after any death of the process.
All of it are 64-bit little-endian integers ("words"):

* the header, `HEADER_WORDS`: what `RingHeader` names; from word `STREAMS_AT` on, two words for each stream, which are
  its device and its handle.
* the marks, `MARK_WORDS`, which devices write in the order of their streams: `call << POSITION_BITS | position` says
  that what was submitted to the stream before launch `position` of `call` is finished. The first `MOST_STREAMS`
  are of streams, the others ("graph slots") of calls that were captured into a CUDA graph, where each replay counts
  up the position, with the bit above it set.
* blocks one behind the other, each a graph call, numbers that a call computes (`SYMBOL_WORDS`), or what may end a
  step. Its first word is its size in words, the second says what it is; 0: nothing, or it is being written.

A block is used again once its call is in the log: a call that the log holds is to be ignored here. Of a call the
launches stand at places of their own (`Form.SLOTS`: start and end of each launch site; `Form.ROWS`: site, start, end
of each launch, in order; `Form.SITES`: the site of each launch, in order, all with the times of the call). Each word
is written at once, and the word that makes others valid is written after them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import PurePath

RING_SUFFIX = ".ring"
MAGIC = int.from_bytes(b"SSRING01", "little")
WORD = 8
HEADER_WORDS = 512
STREAMS_AT = 16
MOST_STREAMS = 128
MARK_WORDS = 2048
BLOCKS_AT = (HEADER_WORDS + MARK_WORDS) * WORD
"""Bytes before the first block."""
POSITION_BITS = 24
MOST_BYTES = 1 << 26
"""Of a ring."""
BLOCKING = 1
"""Flag: each launch waits for the device (``CUDA_LAUNCH_BLOCKING``), and a mark stands behind each one."""

_ASKING = {1, 2, 15}
"""SIGHUP, SIGINT and SIGTERM, on every system that has a ring."""
STATES = "ok", "raised", "captured", "replayed"
UNFINISHED = "unfinished"
STEP_KINDS = "train", "inference"
STEP_ENDS = "user", "optimizer", "call"
STEP_MARKS = "user", "optimizer", "begin", "end"


class RingHeader(IntEnum):
    """Words of the header."""

    MAGIC = 0
    PID = 1
    USED_BYTES = 2
    LOST_CALLS = 3
    FLAGS = 4
    STREAMS = 5
    GRAPH_SLOTS = 6
    WRITE_ERRNO = 7
    """Why the log could not be written any more; 0: it could."""
    ENDED = 8
    """1: the process has left the recorder as it should, whether the log says so or not."""
    SIGNAL = 9
    """That ended the process, as it does by default: of those by which a process is asked to leave; 0: none did."""
    SIGNAL_NS = 10
    """When it came."""


class What(IntEnum):
    """The second word of a block."""

    NOTHING = 0
    CALL = 1
    STEP = 2
    """Of recorders of format version 1."""
    STEP_MARK = 3
    SYMBOLS = 4


class Form(IntEnum):
    """How the launches of a call stand in its block."""

    SLOTS = 0
    ROWS = 1
    SITES = 2


class CallWord(IntEnum):
    """Words of the block of a call; the launches come behind them."""

    CALL = 2
    GRAPH = 3
    FUNCTION = 4
    STEP = 5
    THREAD = 6
    PARENT = 7
    """-1: none."""
    START_NS = 8
    END_NS = 9
    """0: it runs."""
    STATE = 10
    FORM = 11
    FIRST_SITE = 12
    """The site of the first slot."""
    COUNT = 13
    """Slots, or launches."""
    STREAM = 14
    """Index of a stream of the header; -1: it has none."""
    GRAPH_SLOT = 15
    """Index of a graph slot: where its replays are; -1: none."""


CALL_WORDS = 16
SYMBOL_WORDS = 4
"""Of each symbol, behind `CALL_WORDS` words, of which the third is the number of the call and the fourth says how many
symbols follow: its index in `Graph.symbols`, how many launches of the call had begun, the form of its value (0 an
integer, 1 a float, 2 a boolean), the value."""
STEP_WORDS = 8
"""Size, what, step, kind, what ended it, start, end; times in ns of the log's monotonic clock. Of a step mark: size,
what, which of `STEP_MARKS`, who, thread, time."""


@dataclass(frozen=True)
class RingCall:
    """A graph call, its launches in the order in which they began. Times in ns of the log's monotonic clock."""

    call: int
    graph: int
    function: int
    step: int
    thread: int
    parent: int | None
    start_ns: int
    end_ns: int | None
    """None: it had not ended."""
    state: str
    """As in `records.Calls`; ``unfinished`` while it runs."""
    sites: Sequence[int]
    starts_ns: Sequence[int]
    ends_ns: Sequence[int]
    """-1: the launch has not returned to the host."""
    stream: int | None
    """Position in `Ring.streams`."""
    graph_slot: int | None
    """Which calls of a CUDA graph are the same one, replayed."""
    finished_in_graph: int | None
    """How many launches the last replay of it that has begun on the device has finished at least; None: none has."""


@dataclass(frozen=True)
class RingSymbols:
    """What symbols of a call have come to be, in that order."""

    call: int
    symbols: Sequence[int]
    launches: Sequence[int]
    values: Sequence[int | float | bool]


@dataclass(frozen=True)
class RingStep:
    """A step that has ended."""

    step: int
    kind: str
    by: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class RingMark:
    """What may end a step, as in `records.StepMarks`."""

    what: str
    who: int
    thread: int
    ns: int


@dataclass(frozen=True)
class RingStream:
    """A stream of a device: all that was submitted to it before launch `position` of `call` is finished."""

    device: int
    stream: int
    """Handle, as the driver knows it."""
    call: int | None
    """None: nothing of it is known to be finished."""
    position: int | None


@dataclass(frozen=True)
class Ring:
    """What a ring holds, in no order."""

    pid: int
    calls: Sequence[RingCall]
    steps: Sequence[RingStep]
    marks: Sequence[RingMark]
    streams: Sequence[RingStream]
    lost_calls: int
    """Calls that found no room."""
    is_blocking: bool
    """A mark stands behind each launch: what comes next is what runs."""
    write_errno: int | None
    """Why the log could not be written any more; None: it could."""
    has_ended: bool
    """The recorder was left as it should be, whether the log says so or not."""
    damaged: int
    """Blocks that cannot be."""
    asked_by: int | None = None
    """The signal that ended the process; None: none of those by which a process is asked to leave."""
    asked_ns: int = 0
    """When it came."""
    symbols: Sequence[RingSymbols] = ()


def ring_path(log: PurePath) -> str:
    """The name of the ring of a log, which may be packed meanwhile: ``x.log.gz`` -> ``x.log.ring``."""
    name = str(log)
    for suffix in (".gz", ".zst"):
        name = name.removesuffix(suffix)
    return name + RING_SUFFIX


def used_bytes(header: bytes) -> int:
    """How much of a ring is in use, from its first `BLOCKS_AT` bytes. Raises ValueError when it is no ring."""
    if len(header) < BLOCKS_AT:
        raise ValueError("the launch ring is cut short")
    words: tuple[int, ...] = struct.unpack_from("<3q", header)
    if words[RingHeader.MAGIC] != MAGIC:
        raise ValueError("the launch ring is not one, or of another version")
    return min(max(words[RingHeader.USED_BYTES], 0) + BLOCKS_AT, MOST_BYTES)


def read_ring(data: bytes) -> Ring:
    """What can be read of a ring. Raises ValueError, with one sentence, when it is none."""
    words = memoryview(data[: used_bytes(data[:BLOCKS_AT]) // WORD * WORD])
    header = struct.unpack_from(f"<{HEADER_WORDS}q", words)
    marks = struct.unpack_from(f"<{MARK_WORDS}q", words, HEADER_WORDS * WORD)
    calls: list[RingCall] = []
    steps: list[RingStep] = []
    step_marks: list[RingMark] = []
    symbols: list[RingSymbols] = []
    damaged, at = 0, BLOCKS_AT
    while at + 2 * WORD <= len(words):
        size, what = struct.unpack_from("<2q", words, at)
        if size < STEP_WORDS or at + size * WORD > len(words):
            damaged += 1
            break
        try:
            block = struct.unpack_from(f"<{size}q", words, at)
            if what == What.CALL and block[CallWord.START_NS]:
                calls.append(_call(block, marks))
            elif what == What.STEP:
                kind, by = _named(STEP_KINDS, block[3]), _named(STEP_ENDS, block[4])
                steps.append(RingStep(block[2], kind, by, block[5], block[6]))
            elif what == What.STEP_MARK:
                step_marks.append(RingMark(_named(STEP_MARKS, block[2]), block[3], block[4], block[5]))
            elif what == What.SYMBOLS:
                symbols.append(_symbols(block))
            elif what not in (What.NOTHING, What.CALL):
                damaged += 1
        except (ValueError, IndexError):  # of a kind that is not known; too short for a call
            damaged += 1
        at += size * WORD
    return Ring(
        pid=header[RingHeader.PID],
        calls=calls,
        steps=steps,
        marks=step_marks,
        streams=_streams(header, marks),
        lost_calls=max(header[RingHeader.LOST_CALLS], 0),
        is_blocking=bool(header[RingHeader.FLAGS] & BLOCKING),
        write_errno=header[RingHeader.WRITE_ERRNO] & 0xFFFF or None,
        has_ended=header[RingHeader.ENDED] == 1,
        damaged=damaged,
        asked_by=header[RingHeader.SIGNAL] if header[RingHeader.SIGNAL] in _ASKING else None,
        asked_ns=header[RingHeader.SIGNAL_NS],
        symbols=symbols,
    )


def word_of(value: float | str | None) -> tuple[int, int] | None:
    """Form and word of a value; None: it has none."""
    if value is None:
        return None
    if type(value) is bool:
        return 2, value
    if type(value) is int:
        return 0, value
    word: int = struct.unpack("<q", struct.pack("<d", float(value)))[0]
    return 1, word


def _symbols(block: Sequence[int]) -> RingSymbols:
    """Raises ValueError for what cannot be."""
    count = block[3]
    words = block[CALL_WORDS : CALL_WORDS + SYMBOL_WORDS * count]
    if count < 0 or len(words) != SYMBOL_WORDS * count:
        raise ValueError("it has more symbols than room")
    values = [_value(form, word) for form, word in zip(words[2::4], words[3::4], strict=True)]
    return RingSymbols(block[2], words[0::4], words[1::4], values)


def _value(form: int, word: int) -> float | bool:
    if form == 1:
        number: float = struct.unpack("<d", struct.pack("<q", word))[0]
        return number
    if form not in (0, 2):
        raise ValueError("it has a value of a form that is not known")
    return bool(word) if form == 2 else word


def _streams(header: Sequence[int], marks: Sequence[int]) -> list[RingStream]:
    found = []
    for index in range(min(max(header[RingHeader.STREAMS], 0), MOST_STREAMS)):
        device, stream = header[STREAMS_AT + 2 * index : STREAMS_AT + 2 * index + 2]
        mark = marks[index]
        call, position = (mark >> POSITION_BITS, mark & (1 << POSITION_BITS) - 1) if mark > 0 else (None, None)
        found.append(RingStream(device, stream, call, position))
    return found


def _call(block: Sequence[int], marks: Sequence[int]) -> RingCall:
    """Raises ValueError for what cannot be."""
    start, end = block[CallWord.START_NS], block[CallWord.END_NS]
    launches = _launches(block, start, end)
    stream, slot = block[CallWord.STREAM], block[CallWord.GRAPH_SLOT]
    if not -1 <= stream < MOST_STREAMS or not -1 <= slot < MARK_WORDS - MOST_STREAMS:
        raise ValueError("it names a mark that is not there")
    parent, mark = block[CallWord.PARENT], marks[MOST_STREAMS + slot] if slot >= 0 else 0
    return RingCall(
        call=block[CallWord.CALL],
        graph=block[CallWord.GRAPH],
        function=block[CallWord.FUNCTION],
        step=block[CallWord.STEP],
        thread=block[CallWord.THREAD],
        parent=parent if parent >= 0 else None,
        start_ns=start,
        end_ns=end or None,
        state=_named(STATES, block[CallWord.STATE]) if end else UNFINISHED,
        sites=[site for site, _, _ in launches],
        starts_ns=[begun for _, begun, _ in launches],
        ends_ns=[returned for _, _, returned in launches],
        stream=stream if stream >= 0 else None,
        graph_slot=slot if slot >= 0 else None,
        finished_in_graph=mark & (1 << POSITION_BITS) - 1 if mark >> POSITION_BITS else None,
    )


def _named(names: Sequence[str], number: int) -> str:
    if not 0 <= number < len(names):
        raise ValueError("it has a kind that is not known")
    return names[number]


def _launches(block: Sequence[int], start: int, end: int) -> list[tuple[int, int, int]]:
    """(site, start, end) of each launch that has begun, in order."""
    form, first, count = Form(block[CallWord.FORM]), block[CallWord.FIRST_SITE], block[CallWord.COUNT]
    words = block[CALL_WORDS : CALL_WORDS + count * {Form.SLOTS: 2, Form.ROWS: 3, Form.SITES: 1}[form]]
    if form is Form.SITES:
        return [(site, start, end or -1) for site in words]
    if form is Form.ROWS:
        return list(zip(words[0::3], words[1::3], words[2::3], strict=True))
    slots = enumerate(zip(words[0::2], words[1::2], strict=True), first)
    # What a slot holds of an earlier call is older than this one; that of a launch in a loop keeps the end of the time
    # before until it returns.
    launches = [(site, begun, returned if returned >= begun else -1) for site, (begun, returned) in slots]
    return sorted((launch for launch in launches if launch[1] >= start), key=lambda launch: launch[1])
