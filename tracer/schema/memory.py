"""The part of the log's schema that is about memory; `records` holds the rest and the rules for both.

A *storage* is one allocation: a buffer and everything that is made of its memory later (views, aliases, reuses).
Positions count launches: position p of a call is the moment when p of its launches have begun, so what is born
at p is there for launch p, and what dies at p was there for launch p - 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

BufferRole = Literal["input", "temporary", "output", "removed"]
StorageKind = Literal["input", "allocated", "returned"]
MismatchKind = Literal["missing_death", "unexpected_death", "missing_allocation", "unexpected_allocation"]
RecomputeReason = Literal["peak", "candidate", "group"]


@dataclass(frozen=True)
class ScheduledBuffers:
    """Buffers of a schedule, as columns."""

    name: list[str]
    alloc_bytes: list[int]
    """Charged to the node that makes it. 0 beside a name whose memory another one holds."""
    free_bytes: list[int]
    first_snode: list[int]
    """Index of the node that makes it; 0 for an input."""
    last_snode: list[int]
    """Index of the last node that uses it; -1: it outlives the graph."""
    role: list[BufferRole]
    """``input``: one that the graph may free; ``removed``: fusion left it no memory after all."""


@dataclass(frozen=True)
class SchedulerMemory:
    """What the scheduler expects of memory: torch/_inductor/memory.py over the final order of nodes.

    An estimate: it knows nothing of reuse, of the allocator's rounding, or of the scratch of extern kernels.
    Inputs that a graph may not free (weights) are no part of its curve; they are `base`.
    """

    KIND: ClassVar[str] = "scheduler_memory"

    graph: int
    subgraph: str | None
    """Name of the subgraph that the schedule is of (``true_graph_0``); None: the graph itself."""
    snode: list[str]
    """Names of the nodes in their final order (``op3``, ``op0_op1`` for a fused one)."""
    members: list[list[str]]
    """Names of the operations that each node computes."""
    node_kind: list[str]
    """Class of each node, e.g. ``FusedSchedulerNode``."""
    alloc_bytes: list[int]
    free_bytes: list[int]
    after_alloc_bytes: list[int]
    """Estimated live bytes when the node has its outputs and nothing is freed yet."""
    after_free_bytes: list[int]
    buffers: ScheduledBuffers
    peak_bytes: int
    peak_snodes: list[int]
    """Index of every node at the peak."""
    base_name: list[str]
    base_bytes: list[int]


@dataclass(frozen=True)
class LifetimeLayout:
    """Which storages a call sees, and when they are born and die, as columns. Calls that run alike share a layout.

    Storages stand in the order in which the call meets them: its inputs, then what it makes.
    """

    KIND: ClassVar[str] = "lifetime_layout"

    layout: int
    graph: int
    function: int
    """Index into `Graph.functions`."""
    name: list[str]
    """The first name that the wrapper has for it, e.g. ``buf3``; ``buf6[1]`` for a member of what a launch returned."""
    kind: list[StorageKind]
    """``input``: the caller's; ``allocated`` by a statement of the wrapper; ``returned`` by a launch."""
    storage_bytes: list[int]
    device: list[str | None]
    """None: a call before this one met it and has said so."""
    born: list[int]
    """Position at which the call meets it; 0 for an input. What a launch returned counts as there while it ran."""
    site: list[int | None]
    """The launch site that returned it; None: another kind."""
    calls_back: list[int | None]
    """The storage was met before, in this step or one shortly before, by the call that many calls before this one;
    below 0: by one that this call made."""
    met_in: list[int | None]
    """The storage was met before, longer ago, by this call."""
    met_as: list[int | None]
    """Which storage of that call it is; None: this call is the first to meet it."""
    dead: list[int]
    """Storages (indices into the columns above) that die while the call runs, in order."""
    dead_at: list[int]
    """Their positions."""


@dataclass(frozen=True)
class AllocatorCurve:
    """What the allocator of the device said at places of a call, as columns."""

    call: list[int]
    position: list[int]
    allocated_bytes: list[int]
    reserved_bytes: list[int]


@dataclass(frozen=True)
class Lifetimes:
    """A batch of calls: which layout each one followed, and what died outside of them, as columns."""

    KIND: ClassVar[str] = "lifetimes"

    call: list[int]
    layout: list[int]
    dead_call: list[int]
    """With `dead_index`: storages that died while no call, or none that knew them, ran on the thread."""
    dead_index: list[int]
    dead_ns: list[int]
    allocator: AllocatorCurve
    """Asked for at the begin and end of calls on a CUDA device, and at every launch of some of them."""


@dataclass(frozen=True)
class LifetimeMismatch:
    """A call whose storages did not live as expected, as columns. One record for each layout that does not fit."""

    KIND: ClassVar[str] = "lifetime_mismatch"

    graph: int
    layout: int
    call: int
    """The first call that ran so."""
    kind: list[MismatchKind]
    """``missing_death``: it lived on when it should have died; ``unexpected_death``: it died before that;
    ``missing_allocation``: it was not there when it should have been; ``unexpected_allocation``: nobody expected it."""
    buffer: list[str]
    storage: list[int | None]
    """Index into the layout's storages; None: there is none."""
    storage_bytes: list[int | None]
    expected: list[int | None]
    """Position; None: it was to outlive the call (a death) or not to exist (an allocation)."""
    actual: list[int | None]
    expected_by: list[Literal["schedule", "wrapper"]]
    """Whose word it is: the scheduler's, or the statements of the wrapper."""
    holders: list[list[str]]
    """Who still holds the storage, e.g. ``list of 3 in keep of __main__``; empty: not looked for, or nothing found."""


@dataclass(frozen=True)
class MemoryStepMismatch:
    """A check in generated code found that buffers were not born or did not die as it was told, as columns.

    `stepscope.check_memory_step`, or torch/_inductor/runtime/debug_utils.py's own while a recorder stands in for it.
    """

    KIND: ClassVar[str] = "memory_step_mismatch"

    graph: int | None
    """None: the code is no wrapper that was recorded."""
    call: int | None
    """The first one in which it was found."""
    file: str
    line: int
    """Of the check."""
    is_final_step: bool
    kind: list[MismatchKind]
    """As in `LifetimeMismatch`."""
    buffer: list[str]
    storage_bytes: list[int | None]
    """None: it was not allocated."""
    holders: list[list[str]]
    """Who still holds a storage that should be dead; as in `LifetimeMismatch`. Looked for when it is found first."""
    site: int | None = None
    """The launch site of the graph that ran last before the check; None: not known."""
    storage: list[str] = field(default_factory=list)
    """The first name of the memory of each buffer; empty: not known."""
    times: list[int] = field(default_factory=list)
    """How often each was found; that it was found again stands in further records, which count on. Empty: once."""


@dataclass(frozen=True)
class Growth:
    """Storages that steps have left behind, as columns; looked at when the recording ends.

    A storage is left behind when it was made by a compiled call of an earlier step and is still alive.
    """

    KIND: ClassVar[str] = "growth"

    call: list[int]
    index: list[int]
    """Which storage of that call's layout."""
    holders: list[list[str]]
    freed_by_collection: list[bool | None]
    """A full garbage collection freed it; None: none was made."""


@dataclass(frozen=True)
class SwappedNode:
    """A scheduler node that took part in a swap of a reordering pass."""

    name: str
    node_kind: str
    """Its class, e.g. ``ExternKernelSchedulerNode``."""
    kernels: list[str]
    """Functions that it calls, e.g. ``extern_kernels.mm``; empty: Inductor generates its kernel."""
    operators: list[str]
    """What the FX nodes that it computes call, e.g. ``aten.mm.default``."""
    fx_nodes: list[str]
    reads: list[str]
    """Buffers and inputs."""
    writes: list[str]


@dataclass(frozen=True)
class RecomputeMismatch:
    """A reordering pass carried other memory figures along than a full recomputation gives.

    torch/_inductor/comms.py updates the estimate after each swap; torch/_inductor/comms_debug.py recomputes it.
    """

    KIND: ClassVar[str] = "recompute_mismatch"

    pass_name: str
    """``reorder_communication_preserving_peak_memory`` or ``sink_waits_iterative``."""
    swap: int
    """How many swaps of this pass were checked before it."""
    candidate: str
    group: list[str]
    reasons: list[RecomputeReason]
    """All of them. ``peak``: the recomputed peak differs from the one carried along, or is over the allowed one."""
    reason_snode: list[str]
    """Beside each reason: the node; for ``peak`` the first one at the peak."""
    peak_before_bytes: int
    peak_after_bytes: int
    """Recomputed after the swap."""
    allowed_peak_bytes: int
    """`peak_before_bytes` and the share that `reorder_iterative_peak_memory_budget` lets the pass add."""
    is_explained: bool
    """Only the peak differs and it is within the allowed one: torch's check calls it an error, it is none."""
    peak_snodes: list[int]
    """Index of every node at the recomputed peak."""
    snode: list[str]
    """All nodes in the order after the swap; beside each one the figures before and after its frees."""
    carried_after_alloc_bytes: list[int]
    carried_after_free_bytes: list[int]
    recomputed_after_alloc_bytes: list[int]
    recomputed_after_free_bytes: list[int]
    before_after_alloc_bytes: list[int | None]
    """The same nodes before the swap; None: not known."""
    before_after_free_bytes: list[int | None]
    buffers: ScheduledBuffers
    found_by: Literal["torch", "stepscope"]
    """torch's own check was on, or only ours."""
    graph: int | None = None
    """None: the compile came to no graph that could be recorded."""
    subgraph: str | None = None
    compile_id: str | None = None
    swapped: list[SwappedNode] = field(default_factory=list)
    """The candidate, then the nodes of the group in their order."""
    carried_alloc_bytes: list[int] = field(default_factory=list)
    """What each node allocates and frees, as the pass has it (torch's ``ITER_ALLOCFREE``); empty: not known."""
    carried_free_bytes: list[int] = field(default_factory=list)
    recomputed_alloc_bytes: list[int] = field(default_factory=list)
    recomputed_free_bytes: list[int] = field(default_factory=list)
    last_use_buffer: list[str] = field(default_factory=list)
    """Buffers whose last use changes with the swap, as the pass has it (torch's ``GN_TO_BUFS_LAST_USE``)."""
    last_use_before: list[str] = field(default_factory=list)
    """Beside each: the node that was the last to use it,"""
    last_use_after: list[str] = field(default_factory=list)
    """and the one that is now."""
