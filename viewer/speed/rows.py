"""Rows about where the time of steps goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.text.formats import basename

PartKind = Literal[
    "kernels", "launching", "host", "reading", "break", "between", "after", "optimizer", "compile", "data", "outside"
]
PART_NAMES: dict[PartKind, str] = {
    "kernels": "kernels",
    "launching": "launching kernels",
    "host": "host work between launches",
    "reading": "host work and reading of values between launches",
    "break": "graph break",
    "between": "Python between graphs",
    "after": "after the last graph",
    "optimizer": "optimizer",
    "compile": "compilation",
    "data": "waiting for data",
    "outside": "between the steps",
}
PART_MEANINGS: dict[PartKind, str] = {
    "kernels": "Launches run on the CPU in this time.",
    "launching": "The host enqueues work for the device in this time; the device may work for longer.",
    "host": "Generated code allocates and checks tensors and calls subgraphs in this time.",
    "reading": "The recorder reads values in this time, and generated code allocates and checks tensors; a recording at"
    " --level launches has only the latter.",
    "break": "Python runs the code at the line of a graph break, and Dynamo checks guards.",
    "between": "The program runs code that is not compiled, autograd prepares calls, and Dynamo checks guards.",
    "after": "Code that is not compiled runs from the end of the last graph to the end of the step, and so do steps of"
    " optimizers under a millisecond.",
    "optimizer": "An optimizer of torch.optim steps.",
    "compile": "Dynamo, AOTAutograd and Inductor compile in this time.",
    "data": "The program waits for the next batch of a DataLoader.",
    "outside": "The program runs other code between the end of a step and the first graph of the next one.",
}


@dataclass(frozen=True)
class Part:
    """A part of the time of a step. The parts of a step are disjoint and add up to its time."""

    kind: PartKind
    duration_ns: int
    source: SourceLine | None = None
    """The line of the graph break; None for other parts."""

    @property
    def place(self) -> str:
        """Return the line of the graph break as ``train.py:41``; "" for other parts."""
        return f"{basename(self.source.file)}:{self.source.line}" if self.source else ""

    @property
    def label(self) -> str:
        """Return a label such as ``graph break at train.py:41``."""
        return f"{PART_NAMES[self.kind]} at {self.place}" if self.source else PART_NAMES[self.kind]

    @property
    def meaning(self) -> str:
        return PART_MEANINGS[self.kind]


def in_order(sums: Mapping[tuple[PartKind, SourceLine | None], int]) -> list[Part]:
    """Return the parts that have time in the order of `PART_NAMES`, the longest first."""
    order = list(PART_NAMES)
    found = (Part(kind, value, line) for (kind, line), value in sums.items() if value > 0)
    return sorted(found, key=lambda part: (order.index(part.kind), -part.duration_ns))


@dataclass(frozen=True)
class StepSplit:
    """The time from the end of the step before to the end of a step, in parts."""

    log: int
    step: int
    start_ns: int
    """The end of the step before, on the monotonic clock of the log; for a first step its own start."""
    end_ns: int
    parts: list[Part]
    """In the order of `PART_NAMES`; parts without time are left out."""
    verdict: str | None = None
    """A sentence about the largest part; None if nothing of the step was timed."""

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns

    def of(self, kind: PartKind) -> int:
        """Return the time of all parts of one kind in nanoseconds."""
        return sum(part.duration_ns for part in self.parts if part.kind == kind)


@dataclass(frozen=True)
class RunSplit:
    """Where the time of the steps of one log goes."""

    log: int
    rank: int | None
    steps: int
    duration_ns: int
    """Time of all steps together, with the time between them."""
    compile_ns: int
    """Part of `duration_ns` in which the program compiled."""
    typical_steps: int
    """Number of steps without a compile from which `parts` is the mean: those of medium duration."""
    typical_ns: int
    """Mean time of these steps."""
    parts: list[Part]
    verdict: str | None

    @property
    def on_device(self) -> bool:
        """Return whether the host launches kernels for a device."""
        return any(part.kind == "launching" for part in self.parts)


@dataclass(frozen=True)
class TypicalSteps:
    """The typical steps of one log."""

    steps: list[int]
    """Their numbers in order."""
    spans: list[tuple[int, int]]
    """Their start and end on the monotonic clock of the log."""
    times: dict[PartKind, list[int]]
    """Time (ns) of each of these steps, by kind of part; kinds without time are left out."""


@dataclass(frozen=True)
class DeviceTime:
    """The time of one device for a step, as PyTorch's profiler saw it."""

    device: int
    start_ns: int
    """The end of the work of the steps before, on the monotonic clock of the log."""
    end_ns: int
    """The end of the last work that the step enqueued."""
    busy_ns: int
    """Time from `start_ns` to `end_ns` in which at least one stream worked."""
    work_ns: int
    """Durations of all work that the step enqueued; more than the busy time if streams overlap."""
    streams: int
    kernels: int
    collectives: int
    copies: int
    """Number of copies and fills."""
    outside: int
    """Number of kernels, collectives, copies and fills outside of recorded launches."""
    outside_ns: int

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def idle_ns(self) -> int:
        return max(0, self.duration_ns - self.busy_ns)

    @property
    def overlap_ns(self) -> int:
        """Return the time by which streams that work at once shorten the step."""
        return max(0, self.work_ns - self.busy_ns)
