"""Blocks of the launch ring, one for each running call, and the description of a call in its block."""

from __future__ import annotations

import os
import struct
from typing import Any, Protocol

from stepscope.tracer.schema.ring_format import CALL_WORDS, WORD, What

_LEAST_WORDS = 32
_CALL = What.CALL.value
_pack_call = struct.Struct(f"@{CALL_WORDS - 2}q").pack_into


class RingBlock:
    """A part of the ring: views of its words, of the words after those of a call, and of their bytes."""

    __slots__ = ("cells", "data", "tick", "words")

    def __init__(self, view: memoryview) -> None:
        self.words = view.cast("q")
        self.cells = self.words[CALL_WORDS:]
        self.data = view[CALL_WORDS * WORD :]
        self.tick: Any = None
        """Object that writes to `cells` (`stepscope.tracer.runtime.ticks`); None until a call needs one."""


class FunctionShape:
    """The number of launch sites of a graph's function, and the memory that its calls need for them."""

    __slots__ = ("count", "first", "has_loops", "scratch", "words")

    def __init__(self, first: int, count: int, has_loops: bool = False) -> None:
        self.first, self.count, self.has_loops = first, count, has_loops
        self.words = block_words(2 * count)
        self.scratch = memoryview(bytearray(max(2 * WORD * count, WORD))).cast("q")
        """Memory to which calls without a block write."""


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


def is_blocking() -> bool:
    """Return whether launches of this process wait for their device."""
    return os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0")


def block_words(words: int) -> int:
    """Return the size of a block, in words, for `words` words; there are few sizes, so that blocks are reused."""
    return max(_LEAST_WORDS, 1 << (CALL_WORDS + words - 1).bit_length())


def describe_call(block: RingBlock, call: CallInRing, form: int, count: int, first_site: int = 0) -> None:
    """Describe a call that has begun; the block becomes valid for readers with the last word."""
    parent = call.parent.number if call.parent is not None else -1
    words = block.words
    _pack_call(
        words, 2 * WORD, call.number, call.graph, call.function, call.step, call.thread, parent,
        call.start_ns, 0, 0, form, first_site, count, call.stream, call.graph_slot,
    )  # fmt: skip
    words[1] = _CALL
