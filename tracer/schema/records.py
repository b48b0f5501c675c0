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

from stepscope.tracer.schema.gaps import CompileError as CompileError
from stepscope.tracer.schema.gaps import Failure as Failure
from stepscope.tracer.schema.gaps import Skipped as Skipped
from stepscope.tracer.schema.graphs import Argument as Argument
from stepscope.tracer.schema.graphs import ChangedLine as ChangedLine
from stepscope.tracer.schema.graphs import CppCode as CppCode
from stepscope.tracer.schema.graphs import Graph as Graph
from stepscope.tracer.schema.graphs import Held as Held
from stepscope.tracer.schema.graphs import LaunchKind as LaunchKind
from stepscope.tracer.schema.graphs import LaunchSite as LaunchSite
from stepscope.tracer.schema.graphs import MemoryEvent as MemoryEvent
from stepscope.tracer.schema.graphs import MemoryStatement as MemoryStatement
from stepscope.tracer.schema.graphs import Provenance as Provenance
from stepscope.tracer.schema.graphs import Role as Role
from stepscope.tracer.schema.graphs import SiteProvenance as SiteProvenance
from stepscope.tracer.schema.graphs import Version as Version
from stepscope.tracer.schema.launches import UNRECORDED as UNRECORDED
from stepscope.tracer.schema.launches import Calls as Calls
from stepscope.tracer.schema.launches import DeviceTimes as DeviceTimes
from stepscope.tracer.schema.launches import Launches as Launches
from stepscope.tracer.schema.launches import SameTensors as SameTensors
from stepscope.tracer.schema.launches import TensorMeta as TensorMeta
from stepscope.tracer.schema.launches import Tensors as Tensors
from stepscope.tracer.schema.launches import TunedKernels as TunedKernels
from stepscope.tracer.schema.memory import AllocatorCurve as AllocatorCurve
from stepscope.tracer.schema.memory import BufferRole as BufferRole
from stepscope.tracer.schema.memory import Growth as Growth
from stepscope.tracer.schema.memory import LifetimeLayout as LifetimeLayout
from stepscope.tracer.schema.memory import LifetimeMismatch as LifetimeMismatch
from stepscope.tracer.schema.memory import Lifetimes as Lifetimes
from stepscope.tracer.schema.memory import MemoryStepMismatch as MemoryStepMismatch
from stepscope.tracer.schema.memory import MismatchKind as MismatchKind
from stepscope.tracer.schema.memory import RecomputeMismatch as RecomputeMismatch
from stepscope.tracer.schema.memory import RecomputeReason as RecomputeReason
from stepscope.tracer.schema.memory import ScheduledBuffers as ScheduledBuffers
from stepscope.tracer.schema.memory import SchedulerMemory as SchedulerMemory
from stepscope.tracer.schema.memory import StorageKind as StorageKind
from stepscope.tracer.schema.memory import SwappedNode as SwappedNode
from stepscope.tracer.schema.process_ends import CALL_RAISED as CALL_RAISED
from stepscope.tracer.schema.process_ends import FAILED_CALL as FAILED_CALL
from stepscope.tracer.schema.process_ends import CrashRun as CrashRun
from stepscope.tracer.schema.process_ends import End as End
from stepscope.tracer.schema.process_ends import Frame as Frame
from stepscope.tracer.schema.process_ends import Overhead as Overhead
from stepscope.tracer.schema.process_ends import ProcessEnd as ProcessEnd
from stepscope.tracer.schema.process_ends import ToolError as ToolError
from stepscope.tracer.schema.process_ends import UncaughtException as UncaughtException
from stepscope.tracer.schema.scalars import Assignment as Assignment
from stepscope.tracer.schema.scalars import CallSymbols as CallSymbols
from stepscope.tracer.schema.scalars import InputSize as InputSize
from stepscope.tracer.schema.scalars import Scalar as Scalar
from stepscope.tracer.schema.statistics import Elements as Elements
from stepscope.tracer.schema.statistics import Exact as Exact
from stepscope.tracer.schema.statistics import Sparse as Sparse
from stepscope.tracer.schema.statistics import Values as Values
from stepscope.tracer.schema.steps import StepMarks as StepMarks
from stepscope.tracer.schema.steps import Steps as Steps
from stepscope.tracer.schema.values import OF_THE_CALL as OF_THE_CALL
from stepscope.tracer.schema.values import Moment as Moment
from stepscope.tracer.schema.values import SavedTensor as SavedTensor
from stepscope.tracer.schema.values import ValueLayout as ValueLayout

FORMAT_VERSION = 2
CACHED_ESTIMATE = "estimated memory of a cached graph"
"""`Skipped.what` of a graph from a cache that was compiled without stepscope; it is not reported as a problem."""
DEVICE_FAILED = "the device had failed"
"""Beginning of `Skipped.why` if a device had failed; the failure has a finding of its own."""
CPP_WRAPPER = (
    "C++ wrapper: the launches happen inside the compiled library, out of Python's sight; compiled under"
    " stepscope run --aoti it prints them"
)
"""`Skipped.why` of a graph with a C++ wrapper; the output of the library may be in a log of its own."""
ARTIFACT_PREFIX = "stepscope_"
PRINTED_KEY = "printed_"
"""Beginning of `Graph.wrapper_key` if the graph was read from printed text."""
PRINTER_LEAVES_OUT = "weights, views and constants, which PyTorch's debug printer does not print"
"""`Graph.operands_left_out` of such graphs."""
OUTPUT_CODE = f"{ARTIFACT_PREFIX}output_code_"
"""Beginning of the name of an artifact that is not JSON: ``stepscope_output_code_3`` is the code of graph 3. The
artifact exists if torch does not log the code itself: the graph was loaded before recording began, is from a backend
other than Inductor, or its launches cannot be recorded."""


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
