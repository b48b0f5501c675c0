"""Graph calls that have ended, and marks of steps, which the log does not hold yet. The launch ring does until then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stepscope.tracer.log.launch_ring import Block, LaunchRing
from stepscope.tracer.runtime.launches import Call
from stepscope.tracer.schema.records import StepMarks
from stepscope.tracer.steps import StepMark

MOST_CALLS = 4096
MOST_LAUNCHES = 16_384
MOST_MARKS = 4096


class Batch(NamedTuple):
    """What goes into the log together."""

    calls: list[Call]
    launches: int
    marks: list[tuple[StepMark, Block | None]]


class Unwritten:
    """Safe to call from any thread; the caller of `take` holds a lock."""

    def __init__(self, ring: LaunchRing) -> None:
        self._ring = ring
        self._calls: list[Call] = []
        self._marks: list[tuple[StepMark, Block | None]] = []
        self._launches = 0

    def __bool__(self) -> bool:
        return bool(self._calls or self._marks)

    @property
    def is_much(self) -> bool:
        """So much that it should be written at once."""
        return (
            self._launches > MOST_LAUNCHES or len(self._calls) > MOST_CALLS or len(self._marks) > MOST_MARKS
        )  # fmt: skip

    def add_call(self, call: Call) -> None:
        self._calls.append(call)
        self._launches += (len(call.rows) + 1) // 3

    def add_mark(self, mark: StepMark) -> None:
        self._marks.append((mark, self._ring.step_mark(mark.what, mark.who, mark.thread, mark.ns)))

    def end_calls(self, running: dict[int, Call], now_ns: int) -> None:
        """Recording ends: calls that still run, on other threads, are told of as far as they have come."""
        for number, call in list(running.items()):
            if call.hooks is not None and call.start_ns:
                self.add_call(call.unfinished(now_ns))
            del running[number]

    def take(self) -> Batch:
        calls, self._calls = self._calls, []
        launches, self._launches = self._launches, 0
        marks = self._marks[:]
        del self._marks[: len(marks)]  # another thread may have added one meanwhile
        return Batch(calls, launches, marks)

    def written(self, batch: Batch) -> None:
        """It is in the log: its places in the ring can be used again."""
        for call in batch.calls:
            self._ring.give_back(call.block)
            self._ring.give_back(call.symbol_block)
            call.block = call.symbol_block = None
        for _, block in batch.marks:
            self._ring.give_back(block)


def to_record(marks: Sequence[tuple[StepMark, Block | None]]) -> StepMarks:
    return StepMarks(*(list(column) for column in zip(*(mark for mark, _ in marks), strict=True)))
