"""What queries about the memory figures of reordering passes give back."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.viewer.memory.rows import ScheduledBufferRow


@dataclass(frozen=True)
class SwappedNodeRow:
    """A scheduler node that a reordering pass moved, or one that it moved past."""

    name: str
    node_kind: str
    kernels: list[str]
    operators: list[str]
    fx_nodes: list[str]
    reads: list[str]
    writes: list[str]
    words: str
    """What it computes, reads and writes, in a sentence."""


@dataclass(frozen=True)
class LastUseRow:
    """A buffer whose last use a swap has moved from one node to another."""

    buffer: str
    before: str
    """The node that was the last to use it."""
    after: str
    """The one that is now, as the pass carried it along."""
    recomputed: str | None
    """The one that is now, recomputed; None: the buffer outlives the graph, or is not known."""


@dataclass(frozen=True)
class RecomputeRow:
    recompute: int
    log: int
    rank: int | None
    time_unix_ns: int | None
    pass_name: str
    swap: int
    candidate: str
    group: list[str]
    reasons: list[str]
    reason_snodes: list[str]
    peak_before_bytes: int
    peak_after_bytes: int
    allowed_peak_bytes: int
    is_explained: bool
    peak_snodes: list[int]
    """Index of every node at the recomputed peak, from 0."""
    peak_snode: str | None
    """Name of the first of them."""
    snodes: int
    """How many nodes there are."""
    found_by: str
    swapped: list[SwappedNodeRow]
    """The candidate, then the nodes of the group; empty: the log does not describe them."""
    compile_id: str | None
    graph: int | None
    """None: the compile came to no graph that could be recorded."""
    subgraph: str | None
    """Name of the subgraph whose nodes the pass moved; None: those of the graph itself."""


@dataclass(frozen=True)
class RecomputeDetail:
    """One swap: all nodes in the order after it, with the figures that were carried along and the recomputed ones."""

    row: RecomputeRow
    snode: list[str]
    carried_after_alloc_bytes: list[int]
    carried_after_free_bytes: list[int]
    recomputed_after_alloc_bytes: list[int]
    recomputed_after_free_bytes: list[int]
    before_after_alloc_bytes: list[int | None]
    before_after_free_bytes: list[int | None]
    carried_alloc_bytes: list[int]
    """What each node allocates and frees, as the pass carried it along; empty: not known."""
    carried_free_bytes: list[int]
    recomputed_alloc_bytes: list[int]
    recomputed_free_bytes: list[int]
    last_uses: list[LastUseRow]
    swapped_snodes: list[int]
    """Where the candidate and the nodes of its group stand after the swap."""
    differs: list[int]
    """Nodes whose carried and recomputed figures differ."""
    buffers: list[ScheduledBufferRow]
    """Largest first."""
    at_peak: list[ScheduledBufferRow]
    """Alive at the first node of the recomputed peak; largest first."""
