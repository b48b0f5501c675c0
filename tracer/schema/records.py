"""The schema of a stepscope log: one frozen dataclass per kind of record.

A log is written in TORCH_TRACE's line grammar (see `log_format`). It contains torch's own structured
records and ours; ours are `artifact` records named ``stepscope_<kind>`` whose JSON payload is one of the
dataclasses below, field for field. Names contain the units: `_ns` for nanoseconds, `_bytes` for bytes. Times are
`time.perf_counter_ns()` unless the name contains `unix`; `Run` has the same moment on both clocks.
Unknown values are ``None``, never 0. Readers ignore fields they do not know.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, get_args

from stepscope.tracer.schema.constants import ARTIFACT_PREFIX
from stepscope.tracer.schema.gaps import CompileError, Failure, Skipped
from stepscope.tracer.schema.graphs import (
    CppCode,
    Graph,
    Provenance,
)
from stepscope.tracer.schema.launches import (
    DeviceTimes,
    Launches,
    SameTensors,
    Tensors,
    TunedKernels,
)
from stepscope.tracer.schema.memory import (
    Growth,
    LifetimeLayout,
    LifetimeMismatch,
    Lifetimes,
    MemoryStepMismatch,
    RecomputeMismatch,
    SchedulerMemory,
)
from stepscope.tracer.schema.process_ends import (
    End,
    Overhead,
    ProcessEnd,
    UncaughtException,
)
from stepscope.tracer.schema.scalars import CallSymbols
from stepscope.tracer.schema.statistics import Values
from stepscope.tracer.schema.steps import StepMarks, Steps
from stepscope.tracer.schema.values import SavedTensor, ValueLayout


@dataclass(frozen=True)
class Run:
    """The first record of a log: what ran, where it ran, and how it was recorded."""

    KIND: ClassVar[str] = "run"

    format_version: int
    stepscope_version: str
    python_version: str
    torch_version: str | None
    triton_version: str | None
    cuda_version: str | None
    devices: list[str]
    rank: int | None
    world_size: int | None
    pid: int
    parent_pid: int
    argv: list[str]
    config: dict[str, Any]
    """The settings of torch._dynamo, torch._inductor and torch._functorch that differ from their defaults, by dotted
    name."""
    level: str
    monotonic_ns: int
    unix_ns: int
    utc_offset_s: int
    forked: bool = False
    """Whether the process was forked from a recorded process, `parent_pid`; it may call `os._exit`, so that the log has
    no `end` record."""
    guesses_steps: bool = False
    """Whether the steps of calls are preliminary, and `StepMarks` decide which step each call belongs to."""
    loads_data: bool = False
    """Whether the process is a worker of a `DataLoader`; its steps are those of the process that it feeds."""


Record = (
    Run | Graph | CppCode | Provenance | Tensors | SameTensors | Steps | StepMarks | Launches | CallSymbols
    | DeviceTimes | ValueLayout | Values | SavedTensor
    | SchedulerMemory | LifetimeLayout | Lifetimes | LifetimeMismatch | Growth | RecomputeMismatch
    | TunedKernels | MemoryStepMismatch | CompileError | Skipped | Failure
    | Overhead | UncaughtException | End | ProcessEnd
)  # fmt: skip
RECORD_TYPES: tuple[type[Record], ...] = get_args(Record)


def artifact_name(record: Record) -> str:
    return ARTIFACT_PREFIX + record.KIND


def to_payload(record: Record) -> dict[str, Any]:
    """Return the JSON payload of `record`."""
    return asdict(record)
