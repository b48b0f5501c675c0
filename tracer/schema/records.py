"""The schema of a stepscope log: one frozen dataclass per kind of record.

A log is written in TORCH_TRACE's line grammar (see `log_format`). It holds torch's own structured
records and ours; ours are `artifact` records named ``stepscope_<kind>`` whose JSON payload is one of the
dataclasses below, field for field. Units stand in the names: `_ns` nanoseconds, `_bytes` bytes. Times are
`time.perf_counter_ns()` unless the name says `unix`; `Run` carries the pair that joins the two clocks.
Unknown is ``None``, never 0. Readers ignore fields they do not know.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal, get_args

from stepscope.tracer.schema.gaps import CompileError as CompileError
from stepscope.tracer.schema.gaps import Failure as Failure
from stepscope.tracer.schema.gaps import Skipped as Skipped
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
from stepscope.tracer.schema.values import OF_THE_CALL as OF_THE_CALL
from stepscope.tracer.schema.values import Elements as Elements
from stepscope.tracer.schema.values import Exact as Exact
from stepscope.tracer.schema.values import Moment as Moment
from stepscope.tracer.schema.values import SavedTensor as SavedTensor
from stepscope.tracer.schema.values import Sparse as Sparse
from stepscope.tracer.schema.values import ValueLayout as ValueLayout
from stepscope.tracer.schema.values import Values as Values

FORMAT_VERSION = 2
CACHED_ESTIMATE = "estimated memory of a cached graph"
"""`Skipped.what` wherever a compile cache was made without us: no reason to alarm anybody."""
DEVICE_FAILED = "the device had failed"
"""`Skipped.why` begins so; what the device died of is told of by itself."""
CPP_WRAPPER = (
    "C++ wrapper: the launches happen inside the compiled library, out of Python's sight; compiled under"
    " stepscope run --aoti it prints them"
)
"""`Skipped.why`; what the library printed may be in a log of its own."""
UNRECORDED = "not recorded"
"""`TensorMeta.dtype` from the first call on whose arguments are not written down any more."""
ARTIFACT_PREFIX = "stepscope_"
PRINTED_KEY = "printed_"
"""`Graph.wrapper_key` begins so where the graph was made from printed text."""
PRINTER_LEAVES_OUT = "weights, views and constants, which PyTorch's debug printer does not print"
"""`Graph.operands_left_out` of such graphs."""
OUTPUT_CODE = f"{ARTIFACT_PREFIX}output_code_"
"""Begins the name of an artifact that is no JSON: ``stepscope_output_code_3`` holds the code of graph 3 as text. It is
there where torch logs no such code: the graph was loaded before recording began, or another backend than Inductor made
it, or its launches cannot be seen."""

LaunchKind = Literal["triton", "cpp", "extern", "fallback", "user_triton", "collective", "subgraph", "copy", "unknown"]
Role = Literal["in", "out", "inout"]
Held = Literal["input", "written", "uninitialised"]
MemoryEvent = Literal["allocate", "pool", "pool_member", "reuse", "alias", "item", "free", "drop", "hold", "read"]


@dataclass(frozen=True)
class Run:
    """First record of a log: what ran, where, and how it was recorded."""

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
    """torch._dynamo / _inductor / _functorch settings that differ from their defaults, by dotted name."""
    level: str
    monotonic_ns: int
    unix_ns: int
    utc_offset_s: int
    forked: bool = False
    """It is a copy of a process that was recorded, `parent_pid`: one that may leave by `os._exit`, without an end."""
    guesses_steps: bool = False
    """The steps of calls were guessed while they ran; which step each belongs to follows from `StepMarks`."""
    loads_data: bool = False
    """It is a worker of a `DataLoader`: the iterations are those of the process that it feeds."""


@dataclass(frozen=True)
class Version:
    """Names the value row of one version of a buffer, within one call."""

    site: int
    argument: int
    moment: Moment
    """``after`` the launch that wrote it; ``before`` the first launch that uses an input."""
    item: int | None = None
    """Which member, where that launch returned several tensors as one."""


@dataclass(frozen=True)
class Argument:
    """One argument of a launch site that may be a tensor."""

    name: str
    """Expression in the generated wrapper, e.g. ``buf3`` or ``reinterpret_tensor(buf3, ...)``."""
    role: Role
    buffer: str | None
    """The buffer behind the expression, e.g. ``buf3``; None for an expression without one."""
    parameter: str | None = None
    """Name of the kernel's own parameter (``in_ptr0``, ``self``, ``out``), where known."""
    storage: str | None = None
    """The allocation or graph input whose memory it is; aliases, views and reuses lead to one name."""
    held: Held | None = None
    """What that memory holds when the launch begins: the caller's data (``input``), what an earlier launch left there
    (``written``), nothing yet, or not all of it (``uninitialised``); None: not known (a form that is not followed)."""
    version: Version | None = None
    """Where the statistics of what it holds stand: each version of a buffer is read once. None: nowhere."""


@dataclass(frozen=True)
class LaunchSite:
    """One launch statement of a generated wrapper."""

    site: int
    function: str
    """Function of the wrapper that holds it: ``call``, ``partition_0``, ``true_graph_0``, ..."""
    line: int
    """Line of the wrapper source, from 1."""
    kernel: str
    kind: LaunchKind
    arguments: list[Argument]
    outputs: list[str]
    """Names the statement binds, e.g. ``["buf4"]``."""
    operator: str | None = None
    """The real operator where `kernel` is only a carrier (``run_and_save_rng_state``)."""
    handle: str | None = None
    """Provenance debug handle, e.g. ``extern_kernels.mm:2``."""
    snodes: list[str] | None = None
    """Scheduler nodes (``op3``); None: not recorded (a cached graph without its sidecar)."""
    source_nodes: list[str] = field(default_factory=list)
    """Nodes of Dynamo's graph that it computes: Inductor's "Source Nodes"."""
    aten: list[str] = field(default_factory=list)
    """Operators that it computes: Inductor's "Original ATen"."""
    scalars: list[Scalar] = field(default_factory=list)
    """The arguments that are no tensors."""


@dataclass(frozen=True)
class MemoryStatement:
    """One allocation, reuse, alias or free statement of a wrapper."""

    event: MemoryEvent
    """``allocate``: `buffer` is made; ``pool``: it is memory that several buffers will share; ``pool_member``: it is
    one of those in the pool `of`; ``reuse``: it takes the memory of `of`, which is dead; ``alias``: it is another
    name, or a view, of `of`; ``item``: it is a member of what a launch returned as `of`; ``free``: the name is
    deleted; ``drop``: it is set to None; ``hold``: a list or a dictionary of this name holds `of` from here on;
    ``read``: the host reads its one element to decide something, and waits for it."""
    buffer: str
    function: str
    line: int
    of: str | None = None
    """For reuse, alias, item, pool_member, hold: the name whose storage it is."""


@dataclass(frozen=True)
class Graph:
    """A generated wrapper module was loaded. One wrapper key can be loaded more than once: each load is a graph."""

    KIND: ClassVar[str] = "graph"

    graph: int
    wrapper_key: str
    """Content hash of the wrapper source = the file name without its ending."""
    compile_id: str | None
    aot_id: str | None
    """``0_forward``; on a cache hit that of the first compile."""
    phase: Literal["forward", "backward", "inference"] | None
    cached: bool | None
    """The scheduler did not run in this process for this load (a cache hit); None: loaded before recording began."""
    dynamic: bool | None
    """The wrapper computes sizes while it runs; None: known only to C++ code that was not seen."""
    functions: list[str]
    sites: list[LaunchSite]
    memory: list[MemoryStatement]
    not_recorded: str | None = None
    """Why no launch of this graph can be seen (C++ wrapper, parse failure); None when they can."""
    symbols: list[str] = field(default_factory=list)
    """Names of numbers that the wrapper's functions are given or compute anew in each call: ``s77``, ``u0``."""
    inputs: list[str] = field(default_factory=list)
    """Inputs that were read although no launch site names them, as far as the sites tell."""
    operands_left_out: str | None = None
    """Which tensors that a launch may read the arguments of its site leave out; None: they name all of them."""


@dataclass(frozen=True)
class CppCode:
    """Generated C++ code prints its launches. What is printed becomes a graph in another log."""

    KIND: ClassVar[str] = "cpp_code"

    sites: list[LaunchSite]
    """Those that print, in the order of the code, each with the arguments that are printed of it."""
    sizes: list[InputSize]


@dataclass(frozen=True)
class SiteProvenance:
    site: int
    stacks: list[list[int]]
    """Stacks of model source, each a list of indices into `Provenance.frames`, outermost first."""
    fx_nodes: list[str]
    """Post-grad FX nodes that the kernel computes."""
    modules: list[str] = field(default_factory=list)
    """The modules of the model that it computes a part of, forward or backward: ``Sequential.2 (GELU)``."""


@dataclass(frozen=True)
class Changed:
    """A line that reads otherwise than when the graph, which came from a cache, was compiled."""

    frame: int
    """Index into `Provenance.frames`."""
    was: Frame | None
    """What it was; None: the frame itself is as compiled, and where its code stands now is not known."""


@dataclass(frozen=True)
class Provenance:
    """Launch sites of a graph -> FX nodes -> lines of model source, as they stand in this run."""

    KIND: ClassVar[str] = "provenance"

    graph: int
    frames: list[Frame]
    sites: list[SiteProvenance]
    changed: list[Changed] = field(default_factory=list)
    """All other frames read as they did when the graph was compiled."""
    compiled_unix_ns: int | None = None
    """When the graph was compiled; None: in this run, or nobody knows, or no line has changed since."""


@dataclass(frozen=True)
class TensorMeta:
    """What an argument was at run time. For a list argument one entry per tensor in it."""

    argument: int
    """Index into the site's `arguments`."""
    dtype: str
    """``float32``; the Python type's name (``int``) for what is no tensor; ``not recorded``: from this call on, the
    site's arguments are not written down any more."""
    size: list[int]
    stride: list[int]
    device: str
    offset: int | None
    """Storage offset in elements."""
    storage_bytes: int | None
    item: int | None = None
    """Position within a list argument."""
    storage: int | None = None
    """Address of the storage: arguments of one launch with the same one share memory."""


@dataclass(frozen=True)
class Tensors:
    """Arguments of one launch site as they were seen. Sent for the first call, and again for dtypes, sizes or strides
    not seen before. Addresses, offsets and storages are those of this call."""

    KIND: ClassVar[str] = "tensors"

    graph: int
    call: int
    site: int
    tensors: list[TensorMeta]


@dataclass(frozen=True)
class SameTensors:
    """Sizes that were seen before have come back: from this call on, until more is said of a launch site, the arguments
    that `Tensors` of an earlier call tell of are again as they say. Addresses, offsets and storages may be others."""

    KIND: ClassVar[str] = "same_tensors"

    graph: int
    call: int
    site: int
    """It holds of this launch site and of those with a higher number."""
    argument: int
    """Of `site` it holds from this argument on."""
    of: int
    """The earlier call."""


@dataclass(frozen=True)
class Steps:
    """A batch of steps that have ended, as columns. A step that has not is known by its calls. Since format version 2
    only a log that was made from printed text holds them."""

    KIND: ClassVar[str] = "steps"

    step: list[int]
    kind: list[Literal["train", "inference"]]
    by: list[Literal["user", "optimizer", "call"]]
    """What ended it: `stepscope.step()`, an optimizer, or a call of a frame that had run in the step already."""
    start_ns: list[int]
    end_ns: list[int]
    """-2: it has ended, and when is not known."""


@dataclass(frozen=True)
class StepMarks:
    """What may end a step, as columns. Which of it does is known later, where the whole log is: an iteration may have
    several optimizers, and the first calls come before any of them has stepped."""

    KIND: ClassVar[str] = "step_marks"

    what: list[Literal["user", "optimizer", "begin", "end"]]
    """`stepscope.step()` was called; an optimizer has stepped; a function whose whole call is a step (`generate` of
    transformers) begins, and ends."""
    who: list[int]
    """Optimizers are numbered in the order in which they first step; 0 for all others."""
    name: list[str | None]
    """The class of the optimizer; None for all others."""
    thread: list[int]
    ns: list[int]


@dataclass(frozen=True)
class Calls:
    """Graph calls of a batch, as columns. A call is one run of one function of a wrapper."""

    call: list[int]
    graph: list[int]
    function: list[int]
    """Index into `Graph.functions`."""
    step: list[int]
    thread: list[int]
    parent: list[int | None]
    """The call inside which it ran, for subgraphs and partitions."""
    start_ns: list[int]
    duration_ns: list[int]
    launches: list[int]
    """How many rows of the batch's `site` belong to it."""
    state: list[str]
    """``ok``; ``raised`` (an exception left it; its last launch did not return); ``captured`` (recorded into a CUDA
    graph: nothing ran yet); ``replayed`` (by a CUDA graph: its launches carry the times of the whole replay);
    ``unfinished`` (it still ran when recording ended, perhaps on another thread: what it had done until then);
    ``printed`` (read from text without times: starts and durations are positions in it)."""


@dataclass(frozen=True)
class Launches:
    """A batch of launches, as columns; rows of a call follow one another in order of execution."""

    KIND: ClassVar[str] = "launches"

    calls: Calls
    site: list[int]
    start_ns: list[int]
    end_ns: list[int]
    """When the launch returned to the host; -1: it did not; -2: it did, and nobody knows when."""


@dataclass(frozen=True)
class DeviceTimes:
    """Times on the device of launches, as columns. They come later than the launches: nothing waits for the device."""

    KIND: ClassVar[str] = "device_times"

    call: list[int]
    launch: list[int]
    """Position of the launch within its call, from 0."""
    duration_ns: list[int]
    how: Literal["events", "timestamps", "profiler"]
    """``events`` around the launch; ``timestamps`` of the statistics before and after it, gaps included; ``profiler``:
    PyTorch's, of the CPU for a kernel that runs there."""


@dataclass(frozen=True)
class TunedKernels:
    """With which configuration Triton kernels of a graph run: the only one, or what autotuning has chosen."""

    KIND: ClassVar[str] = "tuned_kernels"

    graph: int
    kernel: list[str]
    config: list[dict[str, int]]
    """Block sizes, ``num_warps`` and ``num_stages``; numbers only."""


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
    """The JSON payload of `record`."""
    return asdict(record)
