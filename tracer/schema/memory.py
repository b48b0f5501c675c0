"""Records of memory; `stepscope.tracer.schema.records` names them all.

A *storage* is one allocation: a buffer and all later uses of its memory (views, aliases, reuses). Positions count
launches: position p of a call is the moment when p of its launches have begun. A storage that is born at p exists
during launch p, and a storage that dies at p existed during launch p - 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from stepscope.tracer.schema.record import Record

BufferRole = Literal["input", "temporary", "output", "removed"]
StorageKind = Literal["input", "allocated", "returned"]
MismatchKind = Literal["missing_death", "unexpected_death", "missing_allocation", "unexpected_allocation"]
RecomputeReason = Literal["peak", "candidate", "group"]


@dataclass(frozen=True)
class ScheduledBuffers:
    """The buffers of a schedule, as columns."""

    name: list[str]
    alloc_bytes: list[int]
    """The bytes that the node which computes the buffer allocates; 0 if the buffer uses another one's memory."""
    free_bytes: list[int]
    first_snode: list[int]
    """The index of the node that computes the buffer; 0 for an input."""
    last_snode: list[int]
    """The index of the last node that uses the buffer; -1 if the buffer outlives the graph."""
    role: list[BufferRole]
    """``input``: an input that the graph may free; ``removed``: a buffer that has no memory after fusion."""


@dataclass(frozen=True)
class SchedulerMemory(Record):
    """The memory that the scheduler expects: torch/_inductor/memory.py over the final order of nodes.

    The estimate ignores reuse, the allocator's rounding, and the scratch memory of extern kernels.
    Inputs that a graph may not free (weights) are not part of its curve; `base_name` and `base_bytes` have them.
    """

    KIND: ClassVar[str] = "scheduler_memory"

    graph: int
    subgraph: str | None
    """The subgraph that was scheduled (``true_graph_0``); None for the graph itself."""
    snode: list[str]
    """The names of the nodes in their final order (``op3``; ``op0_op1`` for a fused node)."""
    members: list[list[str]]
    """The names of the operations that each node computes."""
    node_kind: list[str]
    """The class of each node, e.g. ``FusedSchedulerNode``."""
    alloc_bytes: list[int]
    free_bytes: list[int]
    after_alloc_bytes: list[int]
    """The estimated live bytes when the outputs of the node are allocated and nothing is freed yet."""
    after_free_bytes: list[int]
    buffers: ScheduledBuffers
    peak_bytes: int
    peak_snodes: list[int]
    """The index of every node at the peak."""
    base_name: list[str]
    base_bytes: list[int]


@dataclass(frozen=True)
class LifetimeLayout(Record):
    """The storages of a call with their births and deaths, as columns. Calls with equal lifetimes share a layout.

    The storages are in the order in which they appear: the inputs of the call, then those that it allocates.
    """

    KIND: ClassVar[str] = "lifetime_layout"

    layout: int
    graph: int
    function: int
    """The index into `Graph.functions`."""
    name: list[str]
    """The wrapper's first name for the storage, e.g. ``buf3``; ``buf6[1]`` for a member of a launch's result."""
    kind: list[StorageKind]
    """``input``: the caller's storage; ``allocated``: by a statement of the wrapper; ``returned``: by a launch."""
    storage_bytes: list[int]
    device: list[str | None]
    """The device; None if the layout of an earlier call names it."""
    born: list[int]
    """The position at which the storage appears; 0 for an input. The result of a launch exists while the launch
    runs."""
    site: list[int | None]
    """The launch site that returned the storage; None for other kinds."""
    calls_back: list[int | None]
    """The distance, in calls, to the call that first had the storage, in this step or one shortly before; negative for
    a call that is nested in this one."""
    met_in: list[int | None]
    """The call of an earlier step that first had the storage, if it was longer ago."""
    met_as: list[int | None]
    """The number of the storage in that call; None if this call is the first that has it."""
    dead: list[int]
    """The storages (indices into the columns above) that die while the call runs, in order."""
    dead_at: list[int]
    """The positions at which they die."""


@dataclass(frozen=True)
class AllocatorCurve:
    """The bytes that the allocator of the device reported at points of a call, as columns."""

    call: list[int]
    position: list[int]
    allocated_bytes: list[int]
    reserved_bytes: list[int]


@dataclass(frozen=True)
class Lifetimes(Record):
    """A batch of calls as columns: the layout of each call, and the storages that died outside of calls."""

    KIND: ClassVar[str] = "lifetimes"

    call: list[int]
    layout: list[int]
    dead_call: list[int]
    """The call that first had each storage that died while no call that knew it was running in the thread."""
    dead_index: list[int]
    """The number of the storage in that call."""
    dead_ns: list[int]
    allocator: AllocatorCurve
    """The allocator's reports at the begin and end of calls on a CUDA device, and at every launch of some calls."""


@dataclass(frozen=True)
class Collections(Record):
    """Garbage collections of the program in which storages of compiled calls died, as columns, and what held such
    storages before. A storage that dies in a collection was held by a reference cycle."""

    KIND: ClassVar[str] = "collections"
    TABLE: ClassVar[str | None] = "collections"

    start_ns: list[int]
    end_ns: list[int]
    generation: list[int]
    held_call: list[int]
    """The call that first had each storage whose holders were searched because it outlived its step. Not all of them
    are in a cycle."""
    held_index: list[int]
    """The number of the storage in that call."""
    holders: list[list[str]]
    """The holders of each of these storages, as `Growth.holders`."""


@dataclass(frozen=True)
class LifetimeMismatch(Record):
    """The storages of a call whose lifetimes differ from the expected ones, as columns. Each layout with mismatches
    has one record."""

    KIND: ClassVar[str] = "lifetime_mismatch"

    graph: int
    layout: int
    call: int
    """The first call with this layout."""
    kind: list[MismatchKind]
    """``missing_death``: the storage lived on when it should have died; ``unexpected_death``: the storage died too
    early; ``missing_allocation``: an expected storage was not allocated; ``unexpected_allocation``: a storage was
    allocated that was not expected."""
    buffer: list[str]
    storage: list[int | None]
    """The index into the layout's storages; None if there is no storage."""
    storage_bytes: list[int | None]
    expected: list[int | None]
    """The expected position; None for a storage that should outlive the call (a death) or not exist (an allocation)."""
    actual: list[int | None]
    expected_by: list[Literal["schedule", "wrapper"]]
    """The source of the expectation: the scheduler, or the statements of the wrapper."""
    holders: list[list[str]]
    """The holders of the storage, such as ``list of 3 in keep of __main__``; empty if none was found or searched."""


@dataclass(frozen=True)
class MemoryStepMismatch(Record):
    """The buffers that were not allocated or freed as a check in generated code expected, as columns.

    The check is `stepscope.check_memory_step`, which also replaces that of torch/_inductor/runtime/debug_utils.py.
    """

    KIND: ClassVar[str] = "memory_step_mismatch"

    graph: int | None
    """The graph; None if the code is not a recorded wrapper."""
    call: int | None
    """The first call in which the mismatch was found."""
    file: str
    line: int
    """The line of the check."""
    is_final_step: bool
    kind: list[MismatchKind]
    """The kind of the mismatch, as in `LifetimeMismatch`."""
    buffer: list[str]
    storage_bytes: list[int | None]
    """The bytes of the storage; None if it was not allocated."""
    holders: list[list[str]]
    """The holders of a storage that should be dead, as in `LifetimeMismatch`, at the first occurrence."""
    site: int | None = None
    """The last launch site of the graph before the check; None if it is unknown."""
    storage: list[str] = field(default_factory=list)
    """The first name of the memory of each buffer; empty if it is unknown."""
    times: list[int] = field(default_factory=list)
    """The number of times that each mismatch was found since the last record about it; empty if once."""


@dataclass(frozen=True)
class RedZoneWrite(Record):
    """Bytes of a red zone, which no launch may write, had changed after a launch. Each site, buffer and side has one
    record."""

    KIND: ClassVar[str] = "red_zone_write"
    TABLE: ClassVar[str | None] = "red_zone_writes"

    graph: int
    call: int
    step: int
    site: int
    launch: int
    """The position of the launch in its call."""
    buffer_graph: int
    """The graph that allocated the buffer, which may be another one than that of the launch."""
    buffer: str
    side: Literal["before", "after"]
    """``after``: the bytes follow the end of the buffer; ``before``: they precede its first byte."""
    distance: int
    """The number of bytes between the buffer and the nearest byte that had changed."""
    changed_bytes: int
    """The number of bytes that had changed within the 4,096 bytes of the red zone."""


@dataclass(frozen=True)
class KeptResults(Record):
    """Results of earlier calls of a graph that the program keeps although all of them are one piece of memory, which
    each call writes again. Each input of a graph has at most one record."""

    KIND: ClassVar[str] = "kept_results"
    TABLE: ClassVar[str | None] = "kept_results"

    graph: int
    call: int
    """The call at the start of which they were found."""
    step: int
    buffer: str
    """The input that the graph writes, and that the results are or show."""
    kept: int
    """The number of references to it in one container, or of tensors that show the same elements."""
    holder: str | None
    """The container that holds them, such as ``list of 7 in frames of __main__``; None if none was found."""


@dataclass(frozen=True)
class KeptTensors(Record):
    """Tensors of one form, outside of what the graphs allocate, whose number grows with each step. They are counted
    three times; the columns have one number for each time. Tensors that share their memory count once."""

    KIND: ClassVar[str] = "kept_tensors"
    TABLE: ClassVar[str | None] = "kept_tensors"

    step: list[int]
    """The steps at the start of which they were counted, as the recorder counts steps; the last one may be the step
    after which the recording ended, and they were counted."""
    ns: list[int]
    """The times when they were counted."""
    tensors: list[int]
    """The numbers of tensors that were alive."""
    with_graph: list[int]
    """The numbers of these that autograd has computed, so that they keep its graph alive."""
    storage_bytes: list[int]
    """The bytes of their storages."""
    dtype: str
    sizes: list[int]
    device: str
    holder: str
    """What holds most of them, such as ``list of 18 in kept of __main__``."""
    hits: int | None
    """How often the cache that holds them was hit; None if the holder is no cache of `functools`."""
    lost_keys: int | None
    """The number of entries of such a cache with a tensor in their key that nothing else in Python refers to, so that
    no call can find them again."""
    most_elements: int | None
    """The largest number of elements that the holder may have; None if it has no limit."""
    file: str | None
    """The place of the cached function, of the only statement that adds to the container, or of the one that closes
    the reference cycle; None if unknown."""
    line: int | None
    cycle_is_collected: bool | None = None
    """Whether Python's garbage collector was on, if each tensor is the result of an autograd function whose context
    refers to it, so that only a collection frees it; None if the holder is another one."""


@dataclass(frozen=True)
class Growth(Record):
    """The storages that steps have left alive when the recording ends, or when a step begins, as columns.

    These are the storages that were allocated by a compiled call of an earlier step and are still alive; when a step
    begins, the last ones of each place that the program holds.
    """

    KIND: ClassVar[str] = "growth"

    call: list[int]
    index: list[int]
    """The number of the storage in that call's layout."""
    holders: list[list[str]]
    freed_by_collection: list[bool | None]
    """Whether a full garbage collection freed the storage; None if there was no collection."""
    tensor_bytes: list[int | None] = field(default_factory=list)
    """The bytes of the elements that tensors show which were found in the storage; None if none was searched or found.
    They are less than the storage's bytes if only views of a part are left. Older logs have an empty list."""
    at_step: int | None = None
    """The step that begins; None if the recording ends."""


@dataclass(frozen=True)
class SwappedNode:
    """A scheduler node that took part in a swap of a reordering pass."""

    name: str
    node_kind: str
    """The class of the node, e.g. ``ExternKernelSchedulerNode``."""
    kernels: list[str]
    """The functions that the node calls, e.g. ``extern_kernels.mm``; empty if Inductor generates its kernel."""
    operators: list[str]
    """The operators of the FX nodes that the node computes, e.g. ``aten.mm.default``."""
    fx_nodes: list[str]
    reads: list[str]
    """The buffers and inputs that the node reads."""
    writes: list[str]


@dataclass(frozen=True)
class RecomputeMismatch(Record):
    """The memory figures of a reordering pass differ from a full recomputation.

    torch/_inductor/comms.py updates the estimate after each swap; torch/_inductor/comms_debug.py recomputes it.
    """

    KIND: ClassVar[str] = "recompute_mismatch"

    pass_name: str
    """``reorder_communication_preserving_peak_memory`` or ``sink_waits_iterative``."""
    swap: int
    """The number of swaps of this pass that were checked before this one."""
    candidate: str
    group: list[str]
    reasons: list[RecomputeReason]
    """All reasons. ``peak``: the recomputed peak differs from the one carried along, or is above the allowed peak."""
    reason_snode: list[str]
    """The node of each reason; for ``peak``, the first node at the peak."""
    peak_before_bytes: int
    peak_after_bytes: int
    """The recomputed peak after the swap."""
    allowed_peak_bytes: int
    """`peak_before_bytes` plus the share that `reorder_iterative_peak_memory_budget` lets the pass add."""
    is_explained: bool
    """Whether only the peak differs and is within the allowed peak, so that torch's check reports a false error."""
    peak_snodes: list[int]
    """The index of every node at the recomputed peak."""
    snode: list[str]
    """All nodes in the order after the swap; the columns below have the figures before and after the frees of each."""
    carried_after_alloc_bytes: list[int]
    carried_after_free_bytes: list[int]
    recomputed_after_alloc_bytes: list[int]
    recomputed_after_free_bytes: list[int]
    before_after_alloc_bytes: list[int | None]
    """The figures of the same nodes before the swap; None if they are unknown."""
    before_after_free_bytes: list[int | None]
    buffers: ScheduledBuffers
    found_by: Literal["torch", "stepscope"]
    """``torch``: torch's own check was on; ``stepscope``: only the check of the recorder was."""
    graph: int | None = None
    """The graph; None if the compile produced no graph that could be recorded."""
    subgraph: str | None = None
    compile_id: str | None = None
    swapped: list[SwappedNode] = field(default_factory=list)
    """The candidate, then the nodes of the group in their order."""
    carried_alloc_bytes: list[int] = field(default_factory=list)
    """The bytes that each node allocates and frees according to the pass (torch's ``ITER_ALLOCFREE``); empty if
    unknown."""
    carried_free_bytes: list[int] = field(default_factory=list)
    recomputed_alloc_bytes: list[int] = field(default_factory=list)
    recomputed_free_bytes: list[int] = field(default_factory=list)
    last_use_buffer: list[str] = field(default_factory=list)
    """The buffers whose last use changes with the swap, according to the pass (torch's ``GN_TO_BUFS_LAST_USE``)."""
    last_use_before: list[str] = field(default_factory=list)
    """The node that was the last to use each buffer before the swap."""
    last_use_after: list[str] = field(default_factory=list)
    """The node that is the last to use each buffer after the swap."""
