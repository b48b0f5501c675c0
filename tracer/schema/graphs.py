"""Records of graphs: generated wrappers, their launch sites, and the lines of the model that they come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from stepscope.tracer.schema.process_ends import Frame
from stepscope.tracer.schema.record import Record
from stepscope.tracer.schema.scalars import InputSize, Scalar
from stepscope.tracer.schema.values import Moment

LaunchKind = Literal["triton", "cpp", "extern", "fallback", "user_triton", "collective", "subgraph", "copy", "unknown"]
Role = Literal["in", "out", "inout"]
Held = Literal["input", "written", "uninitialised"]
MemoryEvent = Literal["allocate", "pool", "pool_member", "reuse", "alias", "item", "free", "drop", "hold", "read"]


@dataclass(frozen=True)
class Version:
    """The value row of one version of a buffer, within one call."""

    site: int
    argument: int
    moment: Moment
    """``after``: after the launch that wrote the version; ``before``: before the first launch that uses an input."""
    item: int | None = None
    """The index of the member if the launch returned several tensors in a tuple or a list."""


@dataclass(frozen=True)
class Argument:
    """One argument of a launch site that may be a tensor."""

    name: str
    """Expression in the generated wrapper, e.g. ``buf3`` or ``reinterpret_tensor(buf3, ...)``."""
    role: Role
    buffer: str | None
    """The buffer behind the expression, e.g. ``buf3``; None for an expression without one."""
    parameter: str | None = None
    """The kernel's name for this parameter (``in_ptr0``, ``self``, ``out``); None if it is unknown."""
    storage: str | None = None
    """The allocation or graph input whose memory the argument uses; aliases, views and reuses share one name."""
    held: Held | None = None
    """The contents of the memory when the launch begins. ``input``: the caller's data; ``written``: data that an
    earlier launch wrote; ``uninitialised``: memory of which not all has been written; None if the statements could not
    be followed."""
    version: Version | None = None
    """The value row with the statistics of the memory's contents; each version of a buffer is read once. None if no
    row has them."""


@dataclass(frozen=True)
class LaunchSite:
    """One launch statement of a generated wrapper."""

    site: int
    function: str
    """The function of the wrapper that contains the statement: ``call``, ``partition_0``, ``true_graph_0``, ..."""
    line: int
    """The line of the wrapper's source, counted from 1."""
    kernel: str
    kind: LaunchKind
    arguments: list[Argument]
    outputs: list[str]
    """The names that the statement binds, e.g. ``["buf4"]``."""
    operator: str | None = None
    """The operator that runs if `kernel` only carries it out (``run_and_save_rng_state``)."""
    handle: str | None = None
    """Inductor's provenance debug handle, e.g. ``extern_kernels.mm:2``."""
    snodes: list[str] | None = None
    """The scheduler nodes that the kernel computes (``op3``); None if they are unknown, as for a graph from a cache
    without its sidecar file."""
    source_nodes: list[str] = field(default_factory=list)
    """The nodes of Dynamo's graph that the kernel computes: Inductor's "Source Nodes"."""
    aten: list[str] = field(default_factory=list)
    """The operators that the kernel computes: Inductor's "Original ATen"."""
    scalars: list[Scalar] = field(default_factory=list)
    """The arguments that are not tensors."""


@dataclass(frozen=True)
class MemoryStatement:
    """One allocation, reuse, alias or free statement of a wrapper."""

    event: MemoryEvent
    """``allocate``: `buffer` is allocated; ``pool``: `buffer` is memory that several buffers will share;
    ``pool_member``: `buffer` is in the pool `of`; ``reuse``: `buffer` takes the memory of `of`, which is dead;
    ``alias``: `buffer` is another name for `of`, or a view of it; ``item``: `buffer` is a member of the result `of` of
    a launch; ``free``: the name is deleted; ``drop``: the name is set to None; ``hold``: a list or a dictionary of
    this name refers to `of` from here on; ``read``: the host waits for the only element of `buffer`, in order to
    decide something."""
    buffer: str
    function: str
    line: int
    of: str | None = None
    """For reuse, alias, item, pool_member and hold: the name whose storage `buffer` gets."""


@dataclass(frozen=True)
class Graph(Record):
    """A generated wrapper module was loaded. Each load is a graph, even if the same wrapper was loaded before."""

    KIND: ClassVar[str] = "graph"

    graph: int
    wrapper_key: str
    """The content hash of the wrapper's source, which is its file name without the suffix."""
    compile_id: str | None
    aot_id: str | None
    """Inductor's AOT id, e.g. ``0_forward``; on a cache hit, that of the first compile."""
    phase: Literal["forward", "backward", "inference"] | None
    cached: bool | None
    """Whether the graph came from a cache, so that the scheduler did not run for it in this process; None if the graph
    was loaded before recording began."""
    dynamic: bool | None
    """Whether the wrapper computes sizes while it runs; None if only C++ code that was not seen shows this."""
    functions: list[str]
    sites: list[LaunchSite]
    memory: list[MemoryStatement]
    not_recorded: str | None = None
    """Why no launch of this graph can be recorded (a C++ wrapper, a parse failure); None if launches are recorded."""
    symbols: list[str] = field(default_factory=list)
    """The names of numbers that the wrapper's functions receive or compute in each call: ``s77``, ``u0``."""
    inputs: list[str] = field(default_factory=list)
    """The inputs that were read although no launch site names them."""
    operands_left_out: str | None = None
    """The kinds of tensors that a launch may read although its arguments do not name them; None if they name all."""
    matmul_precision: str | None = None
    """`torch.get_float32_matmul_precision()` when the wrapper was loaded: ``highest`` computes products of float32 in
    float32, ``high`` and ``medium`` in TensorFloat-32 or bfloat16 where the device can; None if unknown."""


@dataclass(frozen=True)
class CppCode(Record):
    """Generated C++ code that prints its launches. Its output becomes a graph in another log."""

    KIND: ClassVar[str] = "cpp_code"

    sites: list[LaunchSite]
    """The launch sites that print, in the order of the code, with the arguments that are printed."""
    sizes: list[InputSize]


@dataclass(frozen=True)
class SiteProvenance:
    site: int
    stacks: list[list[int]]
    """Stacks of the model's source; each one is a list of indices into `Provenance.frames`, outermost frame first."""
    fx_nodes: list[str]
    """The post-grad FX nodes that the kernel computes."""
    modules: list[str] = field(default_factory=list)
    """The modules of the model that the kernel computes a part of, forward or backward: ``Sequential.2 (GELU)``."""
    recomputed: dict[str, int] = field(default_factory=dict)
    """The activations that a kernel of a backward graph computes again, by buffer: the region of
    `torch.utils.checkpoint` that they belong to, by PyTorch's number."""


@dataclass(frozen=True)
class ChangedLine:
    """A source line that has changed since the graph, which came from a cache, was compiled."""

    frame: int
    """The index into `Provenance.frames`."""
    was: Frame | None
    """The frame at the time of the compile; None if the recorded frame is that of the compile, because the current
    place of its code is unknown."""


@dataclass(frozen=True)
class Provenance(Record):
    """How the launch sites of a graph map to FX nodes and to lines of the model's source, as they are in this run."""

    KIND: ClassVar[str] = "provenance"

    graph: int
    frames: list[Frame]
    sites: list[SiteProvenance]
    changed: list[ChangedLine] = field(default_factory=list)
    """The frames that have changed; all others are as they were when the graph was compiled."""
    compiled_unix_ns: int | None = None
    """When the graph was compiled; None if that was in this run, if it is unknown, or if no line has changed since."""


@dataclass(frozen=True)
class ChangedFrozenWeight(Record):
    """A weight of which `torch._inductor.config.freezing` made a constant of a graph, and which changed later."""

    KIND: ClassVar[str] = "changed_frozen_weight"
    TABLE: ClassVar[str | None] = "changed_frozen_weights"

    compile_id: str | None
    """The compile of the graph."""
    name: str
    """The name of the weight in the compiled module."""
    ns: int | None
    """The begin of the first outermost call of a graph after the change, or the end of the recording; None if the
    change was seen only when the recording ended, because autograd did not count it."""


@dataclass(frozen=True)
class ReplicatedParameters(Record):
    """The inputs of a graph that are parameters which DistributedDataParallel keeps alike on several ranks. The record
    is written when Dynamo has captured the graph."""

    KIND: ClassVar[str] = "replicated_parameters"
    TABLE: ClassVar[str | None] = "replicated_parameters"

    compile_id: str
    expressions: list[str]
    """Dynamo's expression of each input: ``L['self']._parameters['weight']``."""
    parameters: list[str]
    """The name of each parameter in the wrapped module."""
    ranks: list[int]
    """The ranks of the process group in which the parameters are alike."""
    wrapper: int = 0
    """The number of the DistributedDataParallel in its process, in the order in which graphs first used them."""
    buffer_expressions: list[str] = field(default_factory=list)
    """The same for the inputs that are buffers which DistributedDataParallel is told not to broadcast."""
    buffers: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class UnaveragedGradients(Record):
    """A module in a `DistributedDataParallel` whose `forward` was never called, so that it averages no gradients, while
    an optimizer of `torch.optim` trains the module. The program may average gradients or parameters by itself."""

    KIND: ClassVar[str] = "unaveraged_gradients"
    TABLE: ClassVar[str | None] = "unaveraged_gradients"

    name: str
    """The class of the optimizer."""
    steps: int
    """The number of steps that it had made."""
    module: str
    """The class of the module."""
    ranks: list[int]
    """The ranks of the process group over which gradients were to be averaged."""
    digest: str
    """A digest of some elements of the parameters, which is equal on ranks that hold the same ones."""
    collectives: int | None
    """The number of collectives that the process had called since the first step; None if it is not known."""
    file: str | None
    """The place in the program that calls `step`."""
    line: int | None
