"""Places findings about the memory of a graph at its scheduler nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stepscope.viewer.memory.queries.node_places import NodePlace, node_places
from stepscope.viewer.memory.rows import GraphMemory
from stepscope.viewer.overview.rows import SEVERITY_SIGNS, Finding, Severity
from stepscope.viewer.store.trace import Trace

NODE_OF = {
    "growth": (),
    "estimate_gap": ("measured_snode",),
    "recompute_mismatch": ("peak_snode",),
    "lifetime_mismatch": ("expected_snode", "actual_snode"),
}
"""Kinds of findings, with the entries of their evidence that name a node; the first that is known counts."""


@dataclass(frozen=True)
class NodeMark:
    """A finding about the memory of a graph, with the scheduler node that it names."""

    severity: Severity
    sign: str
    title: str
    page: str
    snode: str | None
    snode_index: int | None
    """Index in the final schedule; None if the finding names no node of it."""


def node_marks(trace: Trace, memory: GraphMemory, findings: Iterable[Finding]) -> list[NodeMark]:
    """Return the findings about the memory of a graph or subgraph, in the order of the overview."""
    about = [
        (finding, next(filter(None, map(finding.evidence.get, NODE_OF[finding.kind])), None))
        for finding in findings
        if (finding.graph, finding.evidence.get("subgraph")) == (memory.graph, memory.subgraph)
        and finding.kind in NODE_OF
    ]
    places = node_places(trace, memory.graph, memory.subgraph, [snode for _, snode in about if snode])
    return [_mark(finding, snode, places.get(snode or "")) for finding, snode in about]


def _mark(finding: Finding, snode: str | None, place: NodePlace | None) -> NodeMark:
    known = (finding.severity, SEVERITY_SIGNS[finding.severity], finding.title, finding.page)
    return NodeMark(*known, snode, place.index if place else None)
