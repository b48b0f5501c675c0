"""Defines and reads the launch ring, a file beside the log with the running calls and others not yet in the log.

The recorder writes the ring through shared memory of the file, so it exists after any death of the process. The file
consists of 64-bit little-endian integers ("words"):

* the header, `HEADER_WORDS` words: those of `RingHeader`, and from `STREAMS_AT` on, device and handle of each stream.
* `MARK_WORDS` marks, which devices write in the order of their streams: `call << POSITION_BITS | position` means
  that everything submitted to the stream before launch `position` of `call` is finished. The first `MOST_STREAMS`
  marks belong to streams, the others ("graph slots") to calls that were captured into a CUDA graph, where each replay
  counts up the position, with the bit above it set.
* consecutive blocks, each with a graph call, numbers that a call computes (`SYMBOL_WORDS`), or an event that may end a
  step. The first word of a block is its size in words, the second its `What`, which is 0 for an empty or incomplete
  block.

A block is reused once its call is in the log, so calls that are in the log must be ignored in the ring. The launches of
a call are stored by `Form.SLOTS` (start and end of each launch site), `Form.ROWS` (site, start and end of each launch,
in order) or `Form.SITES` (the site of each launch, in order, all with the times of the call). Each word is written
atomically, and a word that makes others valid is written after them.
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
"""Offset of the first block in bytes."""
POSITION_BITS = 24
MOST_BYTES = 1 << 26
"""Maximum size of a ring."""
BLOCKING = 1
"""Flag which is set if each launch waits for the device (``CUDA_LAUNCH_BLOCKING``) and is followed by a mark."""

_ASKING = {1, 2, 15}
"""SIGHUP, SIGINT and SIGTERM, which ask a process to end, on every system that has a ring."""
STATES = "ok", "raised", "captured", "replayed"
UNFINISHED = "unfinished"
STEP_KINDS = "train", "inference"
STEP_ENDS = "user", "optimizer", "call"
STEP_MARKS = "user", "optimizer", "begin", "end"


class RingHeader(IntEnum):
    """The words of the header."""

    MAGIC = 0
    PID = 1
    USED_BYTES = 2
    LOST_CALLS = 3
    FLAGS = 4
    STREAMS = 5
    GRAPH_SLOTS = 6
    WRITE_ERRNO = 7
    """Error number with which writing the log failed; 0 if it did not fail."""
    ENDED = 8
    """1 if the recorder has ended properly, even if the log has no `end` record."""
    SIGNAL = 9
    """Signal (`_ASKING`) that ended the process by its default action; 0 if none did."""
    SIGNAL_NS = 10
    """Time of the signal."""


class What(IntEnum):
    """The second word of a block."""

    NOTHING = 0
    CALL = 1
    STEP = 2
    """Step that has ended; written by recorders of format version 1."""
    STEP_MARK = 3
    SYMBOLS = 4


class Form(IntEnum):
    """The form of the launches in the block of a call."""

    SLOTS = 0
    ROWS = 1
    SITES = 2


class CallWord(IntEnum):
    """The words of the block of a call, which are followed by its launches."""

    CALL = 2
    GRAPH = 3
    FUNCTION = 4
    STEP = 5
    THREAD = 6
    PARENT = 7
    """Number of the call that this one is nested in; -1 if there is none."""
    START_NS = 8
    END_NS = 9
    """End of the call; 0 while it is running."""
    STATE = 10
    FORM = 11
    FIRST_SITE = 12
    """Site of the first slot."""
    COUNT = 13
    """Number of slots or launches."""
    STREAM = 14
    """Index of a stream of the header; -1 if there is none."""
    GRAPH_SLOT = 15
    """Index of the graph slot in which replays of the call count; -1 if there is none."""


CALL_WORDS = 16
SYMBOL_WORDS = 4
"""Words of each symbol: its index in `Graph.symbols`, the number of launches of the call before it, the form of its
value (0 an integer, 1 a float, 2 a boolean), the value. The symbols follow `CALL_WORDS` words, of which the third is
the number of the call and the fourth the number of symbols."""
STEP_WORDS = 8
"""Words of a step: size, what, step, kind, what ended it, start, end; times in ns of the log's monotonic clock. A step
mark has size, what, index into `STEP_MARKS`, who, thread, time."""


@dataclass(frozen=True)
class RingCall:
    """A graph call with its launches in the order in which they began; times in ns of the log's monotonic clock."""

    call: int
    graph: int
    function: int
    step: int
    thread: int
    parent: int | None
    start_ns: int
    end_ns: int | None
    """End of the call; None if it had not ended."""
    state: str
    """State as in `records.Calls`; ``unfinished`` while the call is running."""
    sites: Sequence[int]
    starts_ns: Sequence[int]
    ends_ns: Sequence[int]
    """End of each launch; -1 if the launch has not returned to the host."""
    stream: int | None
    """Index into `Ring.streams`."""
    graph_slot: int | None
    """Graph slot, which is the same for all replays of a captured call."""
    finished_in_graph: int | None
    """Minimum number of launches that the last replay on the device has finished; None if no replay has begun."""


@dataclass(frozen=True)
class RingSymbols:
    """The values of symbols of a call, in the order in which they were computed."""

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
    """An event that may end a step, as in `records.StepMarks`."""

    what: str
    who: int
    thread: int
    ns: int


@dataclass(frozen=True)
class RingStream:
    """A stream of a device that has finished everything submitted before launch `position` of `call`."""

    device: int
    stream: int
    """Handle of the stream in the driver."""
    call: int | None
    """Number of the call; None if no mark was written."""
    position: int | None


@dataclass(frozen=True)
class Ring:
    """The contents of a ring, in no particular order."""

    pid: int
    calls: Sequence[RingCall]
    steps: Sequence[RingStep]
    marks: Sequence[RingMark]
    streams: Sequence[RingStream]
    lost_calls: int
    """Number of calls for which there was no room."""
    is_blocking: bool
    """Whether a mark follows each launch, so that the launch after the last mark is the one that was running."""
    write_errno: int | None
    """Error number with which writing the log failed; None if it did not fail."""
    has_ended: bool
    """Whether the recorder has ended properly, even if the log has no `end` record."""
    damaged: int
    """Number of invalid blocks."""
    asked_by: int | None = None
    """Signal that ended the process, if it is one of those that ask a process to end (`_ASKING`), else None."""
    asked_ns: int = 0
    """Time of the signal."""
    symbols: Sequence[RingSymbols] = ()


def ring_path(log: PurePath) -> str:
    """Return the path of a log's ring, also if the log is compressed: ``x.log.gz`` -> ``x.log.ring``."""
    name = str(log)
    for suffix in (".gz", ".zst"):
        name = name.removesuffix(suffix)
    return name + RING_SUFFIX


def used_bytes(header: bytes) -> int:
    """Return the used bytes of a ring, given its first `BLOCKS_AT` bytes. Raises ValueError if it is not a ring."""
    if len(header) < BLOCKS_AT:
        raise ValueError("the launch ring is cut short")
    words: tuple[int, ...] = struct.unpack_from("<3q", header)
    if words[RingHeader.MAGIC] != MAGIC:
        raise ValueError("the launch ring is not one, or of another version")
    return min(max(words[RingHeader.USED_BYTES], 0) + BLOCKS_AT, MOST_BYTES)


def read_ring(data: bytes) -> Ring:
    """Return the readable contents of a ring. Raises ValueError with one sentence if it is not a ring."""
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
        except (ValueError, IndexError):  # of an unknown kind, or too short for a call
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
    """Return the form and the word of a value, or None if `value` is None."""
    if value is None:
        return None
    if type(value) is bool:
        return 2, value
    if type(value) is int:
        return 0, value
    word: int = struct.unpack("<q", struct.pack("<d", float(value)))[0]
    return 1, word


def _symbols(block: Sequence[int]) -> RingSymbols:
    """Decode a block of symbols. Raises ValueError if it is invalid."""
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
        raise ValueError("it contains a value of an unknown form")
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
    """Decode a block of a call. Raises ValueError if it is invalid."""
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
        raise ValueError("it contains an unknown kind")
    return names[number]


def _launches(block: Sequence[int], start: int, end: int) -> list[tuple[int, int, int]]:
    """Return (site, start, end) of each launch that has begun, in order."""
    form, first, count = Form(block[CallWord.FORM]), block[CallWord.FIRST_SITE], block[CallWord.COUNT]
    words = block[CALL_WORDS : CALL_WORDS + count * {Form.SLOTS: 2, Form.ROWS: 3, Form.SITES: 1}[form]]
    if form is Form.SITES:
        return [(site, start, end or -1) for site in words]
    if form is Form.ROWS:
        return list(zip(words[0::3], words[1::3], words[2::3], strict=True))
    slots = enumerate(zip(words[0::2], words[1::2], strict=True), first)
    # Times of an earlier call in a slot are before the start of this one; the slot of a launch in a loop has the end
    # of the previous iteration until the launch returns.
    launches = [(site, begun, returned if returned >= begun else -1) for site, (begun, returned) in slots]
    return sorted((launch for launch in launches if launch[1] >= start), key=lambda launch: launch[1])
