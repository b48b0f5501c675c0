"""Frozen rows about memory. Sizes in bytes, times in ns, unknown is None.

Two series, never mixed. *Estimated*: what the scheduler expects of the buffers that a graph makes and of the inputs
that it may free. *Measured*: the storages that a call made and those same inputs while they were alive. Everything
else that a call was given (weights, other inputs) is its *base*, in neither series.
A position p of a call is the moment when p of its launches have begun: what is measured there is what was alive while
launch p (from 0) ran, or, behind the last launch, what the call left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stepscope.viewer.graphs.rows import SourceLine

AliveKind = Literal["parameter", "input", "saved", "temporary", "output"]
"""``parameter``: an input that calls of several steps met; ``saved``: made by a forward call and met by a backward
call; ``output``: made by the call and alive after it; ``temporary``: made by the call and dead before its end."""
ALIVE_KINDS: tuple[AliveKind, ...] = ("parameter", "input", "saved", "temporary", "output")


@dataclass(frozen=True)
class PeakRow:
    peak_bytes: int
    snode: str | None
    """None: the scheduler's nodes are not known, or no node belongs to the place."""
    snode_index: int | None
    snode_indices: list[int]
    """Every node at the peak."""
    position: int | None
    """Of a measured peak."""
    site: int | None
    kernel: str | None
    source: SourceLine | None


@dataclass(frozen=True)
class MemoryCallRow:
    """A call whose storages were followed."""

    call: int
    step: int
    function: str
    layout: int
    start_ns: int
    """On the run's monotonic clock."""
    peak_bytes: int
    """Measured, without the base."""
    base_bytes: int


@dataclass(frozen=True)
class NodeColumns:
    """The x axis of a graph's memory page, as parallel columns: one entry for each scheduler node, in final order."""

    snode: list[str]
    kind: list[str]
    alloc_bytes: list[int]
    free_bytes: list[int]
    after_alloc_bytes: list[int]
    """Estimated."""
    after_free_bytes: list[int]
    """Estimated."""
    measured_bytes: list[int | None]
    """The most that was alive in one of the node's launches, without the base; a node without a launch takes the
    value of the one before it. None: no call was measured, or nothing was launched yet."""
    measured_base_bytes: list[int | None]
    allocated_bytes: list[int | None]
    """The allocator's own figure, where it was asked."""
    reserved_bytes: list[int | None]
    position: list[int | None]
    """Where `measured_bytes` was measured."""
    launched: list[bool]
    """A launch of the measured call belongs to the node."""
    site: list[int | None]
    """The launch site of the node, None: it has none."""
    mismatches: list[int]
    """How many lifetimes of buffers that the node makes or should free did not go as expected."""


@dataclass(frozen=True)
class PositionColumns:
    """What was measured in one call, by position: 0 .. launches, the last one is the end of the call."""

    live_bytes: list[int]
    """Without the base."""
    base_bytes: list[int]
    born_bytes: list[int]
    dead_bytes: list[int]
    launch: list[int | None]
    """None behind the last launch."""
    site: list[int | None]
    """The launch site; None behind the last launch."""
    snode_index: list[int | None]
    start_ns: list[int]
    """Since the call began."""
    allocator_position: list[int]
    allocated_bytes: list[int]
    """Beside `allocator_position`."""
    reserved_bytes: list[int]


@dataclass(frozen=True)
class GraphMemory:
    graph: int
    log: int
    label: str
    """E.g. ``0/0 forward``."""
    subgraph: str | None
    """The subgraph that all of this is about; None: the graph itself."""
    subgraphs: list[str]
    """Others that have a schedule or a measured call."""
    nodes: NodeColumns | None
    """None: the schedule was not recorded."""
    base_bytes: int | None
    """By the schedule: inputs that the graph may not free, and constants."""
    estimated_peak: PeakRow | None
    call: MemoryCallRow | None
    """The call that was measured; None: none was."""
    positions: PositionColumns | None
    measured_peak: PeakRow | None
    kernels: dict[int, str]
    """site -> kernel, of every site in the columns."""
    calls: int
    """How many calls were measured."""


@dataclass(frozen=True)
class BufferDelta:
    name: str
    storage_bytes: int
    role: str
    """Of a schedule: input, temporary, output, removed, base; of a call: input, allocated, returned."""


@dataclass(frozen=True)
class ScheduledBufferRow:
    name: str
    alloc_bytes: int
    free_bytes: int
    first_snode: int
    last_snode: int
    """-1: it outlives the graph."""
    role: str


@dataclass(frozen=True)
class NodeMemory:
    """One scheduler node: what it takes and gives back, by the schedule and as measured."""

    index: int
    snode: str
    kind: str
    members: list[str]
    allocated: list[BufferDelta]
    """By the schedule: beside the node that makes them."""
    freed: list[BufferDelta]
    expected_alive: list[ScheduledBufferRow]
    """By the schedule, while the node runs; largest first."""
    born: list[BufferDelta]
    """Measured at the positions of its launches."""
    dead: list[BufferDelta]
    """Measured right after its launches."""
    positions: list[int]
    source: SourceLine | None
    mismatches: list[LifetimeMismatchRow]


@dataclass(frozen=True)
class AliveRow:
    """A storage that was alive."""

    call: int
    """The call that met it first, and which of its storages it is."""
    storage: int
    name: str
    """As the call that is looked at (else the one that met it first) names it."""
    other_names: list[str]
    """Names of the wrapper for the same memory: reuses and aliases."""
    storage_bytes: int
    device: str
    kind: AliveKind
    graph: int
    """Of the call that met it first."""
    step: int
    site: int | None
    """The launch that wrote it first; None: it came in, or not known."""
    kernel: str | None
    source: SourceLine | None
    """Line of the model that the writing launch comes from."""
    born_ns: int
    died_ns: int | None
    """None: not seen to die."""
    is_base: bool
    """Not in the measured series of the call that is looked at: weights and inputs it may not free."""


@dataclass(frozen=True)
class AliveGroup:
    kind: AliveKind
    source: SourceLine | None
    storages: int
    storage_bytes: int
    names: list[str]
    """Of the largest."""


@dataclass(frozen=True)
class Alive:
    """What was alive at a place; `rows` holds the largest, `groups` and the sums are over all."""

    log: int
    call: int | None
    position: int | None
    ns: int
    """On the run's monotonic clock."""
    snode: str | None
    snode_index: int | None
    rows: list[AliveRow]
    groups: list[AliveGroup]
    """By kind and line of model source, largest first: for the grouped table and the treemap."""
    by_kind: dict[str, int]
    storages: int
    storage_bytes: int
    base_bytes: int
    """Of `storage_bytes`: what is not in the measured series."""


@dataclass(frozen=True)
class RunPeak:
    """The most that was alive of all storages that compiled calls have met."""

    log: int
    device: str
    live_bytes: int
    """All that were met, weights and inputs too."""
    made_bytes: int
    """Of these: made by compiled calls."""
    ns: int
    step: int | None
    call: int | None
    graph: int | None
    position: int | None


@dataclass(frozen=True)
class LiveCurve:
    """Live bytes over time in a window, as columns; a point stands for everything up to the next one."""

    log: int
    device: str
    devices: list[str]
    start_ns: int
    """The run's first and last moment with storages, on its monotonic clock."""
    end_ns: int
    window_start_ns: int
    window_end_ns: int
    at_ns: list[int]
    """Since `window_start_ns`."""
    low_bytes: list[int]
    high_bytes: list[int]
    made_bytes: list[int]
    """The most that compiled calls had made and was alive."""
    merged: bool
    """Several events share a point."""


@dataclass(frozen=True)
class LifetimeMismatchRow:
    mismatch: int
    log: int
    graph: int
    layout: int | None
    call: int | None
    """The first call that ran so."""
    step: int | None
    calls: int
    """How many calls ran so."""
    kind: str
    """missing_death, unexpected_death, missing_allocation, unexpected_allocation."""
    buffer: str
    storage: int | None
    storage_bytes: int | None
    expected: int | None
    """Position; None: it was to outlive the call, or not to exist."""
    actual: int | None
    expected_by: str
    """schedule, wrapper."""
    holders: list[str]
    expected_snode: str | None
    expected_kernel: str | None
    actual_snode: str | None
    actual_kernel: str | None
    actual_launch: int | None
    source: SourceLine | None
    """Line of the model that the launch which wrote the buffer comes from."""
    snode_indices: list[int]
    """Nodes of the schedule that it is shown at."""


@dataclass(frozen=True)
class LeftBehindRow:
    """A storage that was made by a call of an earlier step and was alive when the recording ended."""

    log: int
    call: int
    storage: int
    step: int
    graph: int
    function: str
    buffer: str
    kind: str
    storage_bytes: int
    device: str
    site: int | None
    holders: list[str]
    freed_by_collection: bool | None
    source: SourceLine | None


@dataclass(frozen=True)
class GrowthRow:
    """A buffer that each of the last steps has left behind."""

    log: int
    graph: int
    function: str
    buffer: str
    kind: str
    steps: list[int]
    """Those steps, each of which left it alive."""
    storages: int
    storage_bytes: int
    bytes_per_step: int
    holders: list[str]
    freed_by_collection: bool | None
    source: SourceLine | None
    kernel: str | None
    site: int | None
    launch: int | None
    """The last launch that made one."""


@dataclass(frozen=True)
class GapBuffer:
    name: str
    other_names: list[str]
    measured_bytes: int
    """0: only expected."""
    expected_bytes: int
    """0: not expected to be alive there."""
    why: str
    source: SourceLine | None


@dataclass(frozen=True)
class EstimateGap:
    """Measured against estimated peak of one graph."""

    graph: int
    log: int
    label: str
    call: int
    step: int
    estimated: PeakRow
    measured: PeakRow
    gap_bytes: int
    buffers: list[GapBuffer]
    """What makes the difference, largest first."""


@dataclass(frozen=True)
class Difference:
    name: str
    """A buffer, or ``file:line`` of model source."""
    source: SourceLine | None
    left_bytes: int | None
    """None: not alive there."""
    right_bytes: int | None
    delta_bytes: int


@dataclass(frozen=True)
class MemoryComparison:
    """Two graphs, or one graph in two calls, at their measured peaks (where nothing was measured: nothing)."""

    left: GraphMemory
    right: GraphMemory
    same_graph: bool
    """Both run the same wrapper: nodes and names stand for the same."""
    by_buffer: list[Difference]
    """Only where they do."""
    by_source: list[Difference]
    peak_delta_bytes: int | None
    base_delta_bytes: int | None
