"""Builds the context of the page of a graph's memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from stepscope.viewer.graphs.queries.graphs import list_graphs
from stepscope.viewer.graphs.rows import GraphRow, SourceLine
from stepscope.viewer.memory.marks import NodeMark, node_marks
from stepscope.viewer.memory.queries.alive import alive_in_call
from stepscope.viewer.memory.queries.compare import MemoryComparison, compare_memory
from stepscope.viewer.memory.queries.graph import graph_memory, is_call, measured_calls
from stepscope.viewer.memory.queries.graph_index import GraphIndex, graph_index
from stepscope.viewer.memory.queries.graphs import has_lifetimes
from stepscope.viewer.memory.queries.lifecycle_checks import CheckMismatchRow, check_mismatches
from stepscope.viewer.memory.queries.mismatches import lifetime_mismatches
from stepscope.viewer.memory.queries.nodes import node_memory
from stepscope.viewer.memory.rows import (
    Alive,
    GraphMemory,
    LifetimeMismatchRow,
    MemoryCallRow,
    NodeMemory,
)
from stepscope.viewer.overview.queries.damage import not_recorded
from stepscope.viewer.overview.queries.overview import first_page
from stepscope.viewer.overview.rows import NotRecorded
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import plural
from stepscope.viewer.web.addresses import NotThere, Page, Request
from stepscope.viewer.web.parameters import GRAPH, STEP, matching, number, one_of, text
from stepscope.viewer.web.parts import part, tell

By = Literal["line", "kind", "buffer"]
GROUPINGS: tuple[By, ...] = ("line", "kind", "buffer")
MOST_MISMATCHES = 200


@dataclass(frozen=True)
class NodeAlive:
    """The storages that were alive at the chosen scheduler node, or at the peak if none is chosen."""

    snode: str | None
    snode_index: int | None
    kernel: str | None
    source: SourceLine | None
    node: NodeMemory | None
    """None if the place belongs to no node, or the schedule was not recorded."""
    alive: Alive | None
    """Measured storages; None if no call was measured."""
    remark: str | None
    """Sentence that says where it was measured, if that is not obvious; else None."""


@dataclass(frozen=True)
class GraphMemoryPage:
    graph: GraphRow
    memory: GraphMemory | None
    sources: dict[int, SourceLine]
    """Line of the model for each launch site."""
    calls: list[MemoryCallRow]
    """Measured calls to choose from, the one with the highest peak first."""
    at: NodeAlive | None
    snode: int | None
    """Scheduler node in the address."""
    with_curves: bool
    """False if the request is only for what is alive, because the page shows the curves already."""
    by: str
    """Grouping of the table of alive storages."""
    marks: list[NodeMark]
    """Findings about the memory of the graph."""
    mismatches: list[LifetimeMismatchRow]
    checks: list[CheckMismatchRow]
    missing: list[str]
    """Sentences that say what was not recorded, and why."""
    against: MemoryComparison | None
    against_name: str | None
    """Graph, or graph and call, to compare with, as written in the address."""
    others: list[GraphRow]
    """Other graphs of the same log to compare with."""


def graph_memory_page(trace: Trace, request: Request) -> GraphMemoryPage:
    graph, rows = _graphs(trace, request.id("graph"))
    subgraph, step, call = request.text("subgraph"), request.optional_id("step"), request.optional_id("call")
    calls = measured_calls(trace, graph.graph, subgraph)
    if call is None and step is not None:
        of_step = measured_calls(trace, graph.graph, subgraph, step, 1)
        if not of_step:
            raise NotThere(f"No call of graph {graph.graph} was measured in step {step}.")
        call = of_step[0].call
    memory = graph_memory(trace, graph.graph, call, subgraph)
    if call is not None and (memory is None or memory.call is None):
        if not is_call(trace, graph.graph, call):
            raise NotThere(f"Call {call} of this trace is not a measured call of graph {graph.graph}.")
        tell(f"What call {call} measured is not in the log.")
        call, memory = None, graph_memory(trace, graph.graph, None, subgraph)
    if subgraph is not None and memory is None:
        raise NotThere(f"Graph {graph.graph} has no subgraph “{subgraph[:80]}” whose memory was recorded.")
    by = request.text("by") or GROUPINGS[0]
    if by not in GROUPINGS:
        raise NotThere(f"“{by[:40]}” is not a grouping; use one of {', '.join(GROUPINGS)}.")
    places = graph_index(trace, graph.graph)
    against = request.text("against")
    beside = _comparison(trace, graph.graph, call, against) if against else None
    snode = request.optional_id("snode")
    return GraphMemoryPage(
        graph=graph,
        memory=memory,
        sources={**_sources(memory, places), **_sources_beside(trace, beside)},
        calls=calls,
        at=part("What is alive", None, node_alive, trace, memory, places, snode) if memory else None,
        snode=snode,
        with_curves=request.text("only") != "alive",
        by=by,
        marks=part("Findings", [], _marks, trace, memory),
        mismatches=part("Mismatches of lifetimes", [], lifetime_mismatches, trace, graph.graph)[:MOST_MISMATCHES],
        checks=part("Mismatches of PyTorch's own check", [], check_mismatches, trace, graph.graph)[:MOST_MISMATCHES],
        missing=missing(trace, graph, memory),
        against=beside,
        against_name=against,
        others=[row for row in rows if row.graph != graph.graph and row.log == graph.log][:400],
    )


def _marks(trace: Trace, memory: GraphMemory | None) -> list[NodeMark]:
    return node_marks(trace, memory, first_page(trace).findings) if memory else []


def _graphs(trace: Trace, graph: int) -> tuple[GraphRow, list[GraphRow]]:
    rows = list_graphs(trace)
    found = next((row for row in rows if row.graph == graph), None)
    if found is None:
        raise NotThere(f"This trace contains no graph {graph}.")
    return found, rows


def _sources(memory: GraphMemory | None, places: GraphIndex) -> dict[int, SourceLine]:
    known = {site: places.source(site) for site in (memory.kernels if memory else ())}
    return {site: source for site, source in known.items() if source is not None}


def _sources_beside(trace: Trace, beside: MemoryComparison | None) -> dict[int, SourceLine]:
    return _sources(beside.right, graph_index(trace, beside.right.graph)) if beside else {}


def node_alive(trace: Trace, memory: GraphMemory, places: GraphIndex, asked: int | None) -> NodeAlive:
    """Return what was alive at node `asked`, by default at the measured peak, else at the estimated one."""
    nodes, call = memory.nodes, memory.call
    count = len(nodes.snode) if nodes else 0
    if asked is not None and asked >= count:
        raise NotThere(f"Graph {memory.graph} has {plural(count, 'scheduler node')}: there is none at {asked}.")
    peak = memory.measured_peak or memory.estimated_peak
    index = asked if asked is not None else peak.snode_index if peak else None
    position = None
    if asked is not None and nodes is not None:
        position = nodes.position[asked] or 0
    site = nodes.site[index] if nodes is not None and index is not None else peak.site if peak else None
    return NodeAlive(
        snode=nodes.snode[index] if nodes is not None and index is not None else None,
        snode_index=index,
        kernel=places.kernel(site),
        source=places.source(site),
        node=node_memory(trace, memory.graph, index, call.call if call else None, memory.subgraph)
        if index is not None
        else None,
        alive=alive_in_call(trace, call.call, position) if call else None,
        remark=_remark(memory, asked),
    )


def _remark(memory: GraphMemory, asked: int | None) -> str | None:
    nodes, peak = memory.nodes, memory.measured_peak
    if memory.call is None:
        return None
    if asked is None:
        no_node = peak is not None and nodes is not None and peak.snode_index is None
        return "The measured peak belongs to no scheduler node." if no_node else None
    if nodes is None or nodes.launched[asked]:
        return None
    if nodes.position[asked] is None:
        return "The node and those before it have no launch, so the page shows what was alive at the first launch."
    return "The node has no launch, so the page shows what was alive during the launch before it."


def _comparison(trace: Trace, graph: int, call: int | None, against: str) -> MemoryComparison:
    """Compare with `against`, which names a graph (``1``) or a graph and one of its calls (``1.7``)."""
    named = re.fullmatch(r"(\d{1,18})(?:\.(\d{1,18}))?", against)
    if named is None:
        raise NotThere(f"“{against[:40]}” names no graph to compare with; write a graph, or a graph, a dot and a call.")
    other, other_call = int(named[1]), int(named[2]) if named[2] else None
    found = compare_memory(trace, graph, other, call, other_call)
    if found is None:
        raise NotThere(f"Nothing about the memory of graph {graph} or graph {other} was recorded.")
    if other_call is not None and found.right.call is None:
        raise NotThere(f"Call {other_call} of this trace is not a measured call of graph {other}.")
    return found


def missing(trace: Trace, graph: GraphRow, memory: GraphMemory | None) -> list[str]:
    """Return sentences about what the page cannot show and why, as far as the log says."""
    rows = [row for row in not_recorded(trace) if row.graph in (None, graph.graph) and row.log in (None, graph.log)]
    found = [f"{row.what}: {row.why}" for row in rows if row.graph is not None or _is_about_memory(row)]
    if memory is None or memory.nodes is None:
        found.append(f"the schedule: {_why_no_schedule(graph)}")
    if memory is None or memory.call is None:
        found.append(f"measured bytes: {_why_not_measured(graph, has_lifetimes(trace))}")
    elif memory.positions is not None and not memory.positions.allocator_position:
        found.append("the allocator's own figures: they are recorded only on CUDA devices.")
    return found


def _is_about_memory(row: NotRecorded) -> bool:
    return any(word in row.what for word in ("memory", "lifetime", "storage", "schedule", "allocator"))


def _why_no_schedule(graph: GraphRow) -> str:
    if graph.cached:
        return "the graph came from a cache, so the scheduler did not run, and the recorder's sidecar file is missing."
    if graph.launch_sites is None:
        return graph.not_recorded or "only logs recorded by stepscope contain it."
    return "the log has no record of it."


def _why_not_measured(graph: GraphRow, followed: bool) -> str:
    if graph.not_recorded:
        return graph.not_recorded
    if not followed:
        return "storages were not tracked in this run (lifetimes are off, or PyTorch wrote the log without stepscope)."
    return "no call of this graph was seen." if not graph.calls else "no call of this graph was tracked."


ASKED = (
    GRAPH,
    number("call", "A call by its id in the index."),
    STEP,
    text("subgraph", "The subgraph of a graph."),
    number("snode", "The position of a scheduler node, counted from 0."),
    one_of("by", GROUPINGS, "How buffers that are alive are grouped."),
    matching(
        "against", "[0-9]{1,18}([.][0-9]{1,18})?", "The graph to compare with, or a graph, a dot and one of its calls."
    ),
    number("from", "The first scheduler node that the curves show."),
    number("to", "The last scheduler node that the curves show."),
    text("hide", "Curves that are not shown, with commas between their names."),
    one_of("only", ["alive"], "Leave the curves out."),
)
ROUTES = (Page("/graphs/{graph}/memory", "memory/graph.html", "Memory", GraphMemoryPage, graph_memory_page, ASKED),)
