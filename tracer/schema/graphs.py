"""Records of graphs: generated wrappers, their launch sites, and the lines of the model that they come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from stepscope.tracer.schema.process_ends import Frame
from stepscope.tracer.schema.scalars import InputSize, Scalar
from stepscope.tracer.schema.values import Moment

LaunchKind = Literal["triton", "cpp", "extern", "fallback", "user_triton", "collective", "subgraph", "copy", "unknown"]
Role = Literal["in", "out", "inout"]
Held = Literal["input", "written", "uninitialised"]
MemoryEvent = Literal["allocate", "pool", "pool_member", "reuse", "alias", "item", "free", "drop", "hold", "read"]


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
class ChangedLine:
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
    changed: list[ChangedLine] = field(default_factory=list)
    """All other frames read as they did when the graph was compiled."""
    compiled_unix_ns: int | None = None
    """When the graph was compiled; None: in this run, or nobody knows, or no line has changed since."""
