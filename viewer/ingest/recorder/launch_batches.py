"""Collects batches of launches in compact arrays. It needs no numpy, because many logs have no launches."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from stepscope.tracer.schema.launches import Launches
from stepscope.tracer.schema.steps import StepMarks, Steps
from stepscope.viewer.ingest.decode import BadPayload
from stepscope.viewer.ingest.lenient_json import INT64
from stepscope.viewer.ingest.long_columns import LongColumn

CALL_COLUMNS = ("call", "graph", "function", "step", "thread", "start_ns", "duration_ns", "launches")
LAUNCH_COLUMNS = ("site", "start_ns", "end_ns")


class EndedStep(NamedTuple):
    kind: str | None
    by: str | None
    start_ns: int
    end_ns: int | None
    """None if the end was not recorded."""
    who: str | None = None
    """Class names of the optimizers that ended it."""
    compile_ns: int | None = None
    """Duration of the compiles that it triggered; None if unknown."""
    compiling_ns: int = 0
    """Time between its start and its end in which any compile ran."""

    @property
    def duration_ns(self) -> int | None:
        """Duration without compiles; None if the end is unknown or is all that is known of the step."""
        if self.end_ns is None or self.end_ns == self.start_ns:
            return None
        return min(max(self.end_ns - self.start_ns - self.compiling_ns, INT64[0]), INT64[-1])


class LoggedMark(NamedTuple):
    """A row of `StepMarks`."""

    what: str
    who: int
    name: str | None
    thread: int
    ns: int


def step_marks(batch: StepMarks) -> list[LoggedMark]:
    """Return the marks of a batch. Raises BadPayload if its columns differ in length."""
    columns = (batch.what, batch.who, batch.name, batch.thread, batch.ns)
    if any(len(column) != len(batch.ns) for column in columns):
        raise BadPayload("StepMarks has columns of unequal length")
    return [LoggedMark(*row) for row in zip(*columns, strict=True)]


def ended_steps(batch: Steps) -> dict[int, EndedStep]:
    """Return the steps of a batch by number. Raises BadPayload if its columns are inconsistent."""
    ends = [end_ns if end_ns >= 0 else None for end_ns in batch.end_ns]
    columns = (batch.kind, batch.by, batch.start_ns, ends)
    if any(len(column) != len(batch.step) for column in columns):
        raise BadPayload("Steps has columns of unequal length")
    if min(batch.step, default=0) < 0:
        raise BadPayload("Steps.step is negative")
    return dict(zip(batch.step, map(EndedStep, *columns), strict=True))


def function_name(functions: Sequence[str], index: int) -> str:
    return functions[index] if 0 <= index < len(functions) else f"function {index}"


class LaunchBatches:
    """The batches of one log, joined."""

    def __init__(self) -> None:
        self.calls = {name: array("q") for name in CALL_COLUMNS}
        self.parents: list[int | None] = []
        self.states: list[str] = []
        self.launches = {name: LongColumn() for name in LAUNCH_COLUMNS}
        self._texts: dict[str, str] = {}

    def add(self, batch: Launches) -> None:
        """Append a batch. Raises BadPayload if its columns are inconsistent."""
        calls, count, rows = batch.calls, len(batch.calls.call), len(batch.site)
        if any(len(getattr(calls, name)) != count for name in (*CALL_COLUMNS, "parent", "state")):
            raise BadPayload("Launches.calls has columns of unequal length")
        if not len(batch.start_ns) == len(batch.end_ns) == rows:
            raise BadPayload("Launches has columns of unequal length")
        if min(calls.step, default=0) < 0:
            raise BadPayload("Launches.calls.step is negative")
        if sum(calls.launches) != rows or min(calls.launches, default=0) < 0:
            raise BadPayload("Launches.calls.launches does not add up to the rows of the batch")
        for name, column in self.calls.items():
            column.extend(getattr(calls, name))
        self.parents += calls.parent
        self.states += [self._texts.setdefault(state, state) for state in calls.state]  # few differ
        for name, values in zip(LAUNCH_COLUMNS, (batch.site, batch.start_ns, batch.end_ns), strict=True):
            self.launches[name].extend(values)
