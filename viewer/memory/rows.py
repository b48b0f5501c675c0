"""Rows about memory, with sizes in bytes, times in ns, and None for unknown values.

There are two separate series. *Estimated*: the scheduler's plan for the buffers that a graph creates and the inputs
that it may free. *Measured*: the storages that a call created and the same inputs while they were alive. All other
inputs of a call, such as weights, are its *base*, which is in neither series.
Position p of a call is the time while launch p (counted from 0) runs, or, after the last launch, the end of the call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from stepscope.viewer.graphs.rows import SourceLine

AliveKind = Literal["parameter", "buffer", "input", "unknown", "gradient", "saved", "temporary", "output"]
"""``buffer``: a buffer of a module; ``unknown``: an input or a parameter, because the log does not tell which;
``gradient``: what a backward graph gets or returns; ``saved``: kept by a forward graph for its backward graph;
``output``: alive after the call that created it; ``temporary``: created and freed by the call."""
ALIVE_KINDS: tuple[AliveKind, ...] = get_args(AliveKind)
INPUT_KINDS: tuple[AliveKind, ...] = ("parameter", "buffer", "input", "unknown", "saved")
"""Kinds of storages that a call may have been given."""


@dataclass(frozen=True)
class PeakRow:
    peak_bytes: int
    snode: str | None
    """None if the scheduler's nodes are unknown, or no node belongs to the peak."""
    snode_index: int | None
    snode_indices: list[int]
    """Indices of all nodes at the peak."""
    position: int | None
    """Position of a measured peak; None for an estimated one."""
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
    """Start of the call on the run's monotonic clock."""
    peak_bytes: int
    """Measured peak, without the base."""
    base_bytes: int


@dataclass(frozen=True)
class NodeColumns:
    """The x axis of a graph's memory page as parallel columns, with one entry per scheduler node in final order."""

    snode: list[str]
    kind: list[str]
    alloc_bytes: list[int]
    free_bytes: list[int]
    after_alloc_bytes: list[int]
    """Estimated bytes after the node's allocations."""
    after_free_bytes: list[int]
    """Estimated bytes after the node's frees."""
    measured_bytes: list[int | None]
    """Maximum of alive bytes during the node's launches, without the base; a node without a launch takes the value
    of the node before it. None if no call was measured or nothing was launched yet."""
    measured_base_bytes: list[int | None]
    allocated_bytes: list[int | None]
    """Allocator's own figure; None where it was not read."""
    reserved_bytes: list[int | None]
    position: list[int | None]
    """Position at which `measured_bytes` was measured."""
    launched: list[bool]
    """Whether a launch of the measured call belongs to the node."""
    site: list[int | None]
    """Launch site of the node; None if it has none."""
    mismatches: list[int]
    """Number of lifetime mismatches of buffers that the node creates or should free."""


@dataclass(frozen=True)
class PositionColumns:
    """The measurements of one call by position, of which the last is the end of the call."""

    live_bytes: list[int]
    """Alive bytes, without the base."""
    base_bytes: list[int]
    born_bytes: list[int]
    dead_bytes: list[int]
    launch: list[int | None]
    """Launch; None after the last launch."""
    site: list[int | None]
    """Launch site; None after the last launch."""
    snode_index: list[int | None]
    start_ns: list[int]
    """Start of each launch since the start of the call; the last entry is the end of the call."""
    allocator_position: list[int]
    allocated_bytes: list[int]
    """Allocated bytes at each `allocator_position`."""
    reserved_bytes: list[int]


@dataclass(frozen=True)
class GraphMemory:
    graph: int
    log: int
    label: str
    """Label such as ``0/0 forward``."""
    subgraph: str | None
    """Subgraph that the other attributes describe; None for the graph itself."""
    subgraphs: list[str]
    """Subgraphs that have a schedule or a measured call."""
    nodes: NodeColumns | None
    """None if the schedule was not recorded."""
    base_bytes: int | None
    """Estimated size of constants and of the inputs that the graph may not free."""
    estimated_peak: PeakRow | None
    call: MemoryCallRow | None
    """Measured call; None if no call was measured."""
    positions: PositionColumns | None
    measured_peak: PeakRow | None
    kernels: dict[int, str]
    """Kernel of each site in the columns."""
    calls: int
    """Number of measured calls."""


@dataclass(frozen=True)
class BufferDelta:
    name: str
    storage_bytes: int
    role: str
    """Role in a schedule (input, temporary, output, removed, base) or in a call (input, allocated, returned)."""
    program: str | None
    """Name in the user's program; None if it has none or it is unknown."""


@dataclass(frozen=True)
class ScheduledBufferRow:
    name: str
    alloc_bytes: int
    free_bytes: int
    first_snode: int
    last_snode: int
    """Node that uses the buffer last; -1 if it outlives the graph."""
    role: str
    program: str | None
    """Name in the user's program; None if it has none or it is unknown."""


@dataclass(frozen=True)
class NodeMemory:
    """What one scheduler node allocates and frees, as scheduled and as measured."""

    index: int
    snode: str
    kind: str
    members: list[str]
    allocated: list[BufferDelta]
    """Buffers that the schedule allocates at the node."""
    freed: list[BufferDelta]
    expected_alive: list[ScheduledBufferRow]
    """Buffers that the schedule expects alive while the node runs, largest first."""
    born: list[BufferDelta]
    """Storages born at the positions of its launches."""
    dead: list[BufferDelta]
    """Storages freed right after its launches."""
    positions: list[int]
    source: SourceLine | None
    mismatches: list[LifetimeMismatchRow]
    linked: list[str]
    """Names of the graph's buffers that have a page."""


@dataclass(frozen=True)
class AliveRow:
    """A storage that was alive."""

    call: int
    """First call that saw the storage; `storage` is its number in that call."""
    storage: int
    name: str
    """Name of the buffer that had it at that moment in the inspected call, else in the first call that saw it."""
    program: str | None
    """Name in the user's program, such as ``self.layers.3.weight``; None if it has none or it is unknown."""
    other_names: list[str]
    """Other names of the same memory in the wrapper: reuses and aliases."""
    storage_bytes: int
    device: str
    kind: AliveKind
    graph: int
    """Graph whose wrapper calls it `name`."""
    step: int
    site: int | None
    """Launch site that wrote it first; None if it is an input or the site is unknown."""
    kernel: str | None
    source: SourceLine | None
    """Model line of the launch that wrote it."""
    born_ns: int
    died_ns: int | None
    """None if its death was not recorded."""
    is_base: bool
    """Whether it is a weight or another input that the inspected call may not free, outside the measured series."""


@dataclass(frozen=True)
class AliveGroup:
    kind: AliveKind
    source: SourceLine | None
    storages: int
    storage_bytes: int
    names: list[str]
    """Names of the largest storages."""


@dataclass(frozen=True)
class Alive:
    """The storages alive at one moment; `rows` lists the largest, `groups` and the sums cover all of them."""

    log: int
    call: int | None
    position: int | None
    ns: int
    """Time on the run's monotonic clock."""
    snode: str | None
    snode_index: int | None
    rows: list[AliveRow]
    groups: list[AliveGroup]
    """Groups by kind and model line, largest first, for the grouped table and the treemap."""
    by_kind: dict[str, int]
    storages: int
    storage_bytes: int
    base_bytes: int
    """Part of `storage_bytes` that is not in the measured series."""


@dataclass(frozen=True)
class RunPeak:
    """The peak of the storages that compiled calls saw, on one device."""

    log: int
    device: str
    live_bytes: int
    """Bytes of all these storages, including weights and inputs."""
    made_bytes: int
    """Part of `live_bytes` that compiled calls allocated."""
    ns: int
    step: int | None
    call: int | None
    graph: int | None
    position: int | None


@dataclass(frozen=True)
class LiveCurve:
    """Live bytes in a time window as columns; each point covers the time until the next one."""

    log: int
    device: str
    devices: list[str]
    start_ns: int
    """First time with storages on the run's monotonic clock; `end_ns` is the last."""
    end_ns: int
    window_start_ns: int
    window_end_ns: int
    at_ns: list[int]
    """Time of each point since `window_start_ns`."""
    low_bytes: list[int]
    high_bytes: list[int]
    made_bytes: list[int]
    """Live bytes that compiled calls allocated, at the highest moment of each point, as those below."""
    saved_bytes: list[int]
    """Those of `made_bytes` that a backward call uses later."""
    kept_bytes: list[int]
    """Others of `made_bytes` that outlive the call that allocated them."""
    merged: bool
    """Whether a point covers several events."""


@dataclass(frozen=True)
class LifetimeMismatchRow:
    mismatch: int
    log: int
    graph: int
    layout: int | None
    call: int | None
    """First call with this mismatch."""
    step: int | None
    calls: int
    """Number of calls with the same layout."""
    kind: str
    """``missing_death``, ``unexpected_death``, ``missing_allocation`` or ``unexpected_allocation``."""
    buffer: str
    storage: int | None
    storage_bytes: int | None
    expected: int | None
    """Expected position; None if the storage should outlive the call or should not exist."""
    actual: int | None
    expected_by: str
    """``schedule`` or ``wrapper``."""
    holders: list[str]
    expected_snode: str | None
    expected_kernel: str | None
    actual_snode: str | None
    actual_kernel: str | None
    actual_launch: int | None
    source: SourceLine | None
    """Model line of the launch that wrote the buffer."""
    snode_indices: list[int]
    """Indices of the scheduler nodes at which it is shown."""
    program: str | None
    """Name in the user's program; None if it has none or it is unknown."""


@dataclass(frozen=True)
class GapBuffer:
    name: str
    other_names: list[str]
    measured_bytes: int
    expected_bytes: int
    """0 if the schedule does not expect the buffer to be alive there."""
    why: str
    source: SourceLine | None


@dataclass(frozen=True)
class EstimateGap:
    """The gap between the measured and the estimated peak of one graph."""

    graph: int
    log: int
    label: str
    call: int
    step: int
    estimated: PeakRow
    measured: PeakRow
    gap_bytes: int
    buffers: list[GapBuffer]
    """Buffers that cause the gap, largest first."""
