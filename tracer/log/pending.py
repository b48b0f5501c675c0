"""Keeps the rows that are not in the log yet, but in the launch ring: ended graph calls, and marks of steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from stepscope.tracer.log.launch_ring import LaunchRing
from stepscope.tracer.log.ring_blocks import CallInRing, RingBlock
from stepscope.tracer.schema.steps import StepMarks
from stepscope.tracer.steps import PossibleStepEnd

MOST_CALLS = 4096
MOST_LAUNCHES = 16_384
MOST_MARKS = 4096


AnyCall = TypeVar("AnyCall", bound=CallInRing)


@dataclass(frozen=True)
class PendingBatch(Generic[AnyCall]):
    """Rows that are written to the log together."""

    calls: list[AnyCall]
    launches: int
    marks: list[tuple[PossibleStepEnd, RingBlock | None]]


class PendingRows(Generic[AnyCall]):
    """Collects rows until they are written; thread-safe, but the caller of `take` must have acquired a lock."""

    def __init__(self, ring: LaunchRing) -> None:
        self._ring = ring
        self._calls: list[AnyCall] = []
        self._marks: list[tuple[PossibleStepEnd, RingBlock | None]] = []
        self._launches = 0

    def __bool__(self) -> bool:
        return bool(self._calls or self._marks)

    @property
    def is_much(self) -> bool:
        """Whether there are enough rows to write them at once."""
        return (
            self._launches > MOST_LAUNCHES or len(self._calls) > MOST_CALLS or len(self._marks) > MOST_MARKS
        )  # fmt: skip

    def add_call(self, call: AnyCall) -> None:
        self._calls.append(call)
        self._launches += (len(call.rows) + 1) // 3

    def add_mark(self, mark: PossibleStepEnd) -> None:
        self._marks.append((mark, self._ring.step_mark(mark.what, mark.who, mark.thread, mark.ns)))

    def take(self) -> PendingBatch[AnyCall]:
        calls, self._calls = self._calls, []
        launches, self._launches = self._launches, 0
        marks = self._marks[:]
        del self._marks[: len(marks)]  # another thread may have added one meanwhile
        return PendingBatch(calls, launches, marks)

    def written(self, batch: PendingBatch[AnyCall]) -> None:
        """Release the ring's blocks of `batch`, which is in the log now."""
        for call in batch.calls:
            self._ring.give_back(call.block)
            self._ring.give_back(call.symbol_block)
            call.block = call.symbol_block = None
        for _, block in batch.marks:
            self._ring.give_back(block)


def to_record(marks: Sequence[tuple[PossibleStepEnd, RingBlock | None]]) -> StepMarks:
    return StepMarks(*(list(column) for column in zip(*(mark for mark, _ in marks), strict=True)))
