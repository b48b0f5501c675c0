"""Finds scheduler nodes by name in the final schedule of a graph, with what they launch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.memory.queries.graph_index import graph_index, schedule_of
from stepscope.viewer.store.trace import Trace


@dataclass(frozen=True)
class NodePlace:
    index: int
    """Its index in the final schedule, or that of the node that it was fused into."""
    kernel: str | None
    """Kernel of its first launch; None if no launch belongs to it."""
    source: SourceLine | None
    """Model line of that launch."""


def node_places(trace: Trace, graph: int, subgraph: str | None, names: Iterable[str]) -> dict[str, NodePlace]:
    """Return the places of the nodes that the final schedule of a graph or subgraph has, by name."""
    schedule, places = schedule_of(trace, graph, subgraph), graph_index(trace, graph)
    if schedule is None:
        return {}
    sites: dict[int, int] = {}
    for site, nodes in schedule.nodes_by_site(places).items():
        for node in nodes:
            sites.setdefault(node, site)
    return {
        name: NodePlace(index, places.kernel(sites.get(index)), places.source(sites.get(index)))
        for name in names
        if (index := schedule.index.get(name)) is not None
    }
