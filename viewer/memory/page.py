"""From an address to the context of a page about memory: a run's, a graph's, a recompute mismatch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from stepscope.viewer.memory.mini_curves import mini_curves
from stepscope.viewer.text.formats import format_bytes, plural
from stepscope.viewer.web.addresses import NotThere, Request
from stepscope.viewer.web.contexts import GraphMemoryPage, MemoryOverviewPage, NodeAlive, RecomputePage
from stepscope.viewer.web.parts import part, tell

if TYPE_CHECKING:
    from stepscope.viewer.graphs.rows import GraphRow, SourceLine
    from stepscope.viewer.memory.queries.graph_index import GraphPlaces
    from stepscope.viewer.memory.queries.steps import RunCurve
    from stepscope.viewer.memory.recompute_rows import RecomputeRow
    from stepscope.viewer.memory.rows import GraphMemory, LiveCurve, MemoryComparison
    from stepscope.viewer.overview.rows import NotRecorded
    from stepscope.viewer.store.trace import Trace

GRAPH_QUERY = ("call", "step", "subgraph", "snode", "by", "against", "from", "to", "hide", "only")
RUN_QUERY = ("log", "first_step", "last_step", "device")
LIVE_QUERY = ("log", "start_ns", "end_ns", "width", "device")
By = Literal["line", "kind", "buffer"]
GROUPINGS: tuple[By, ...] = ("line", "kind", "buffer")
MOST_GRAPHS = 12
MOST_MISMATCHES = 200


def memory_page(trace: Trace, request: Request) -> MemoryOverviewPage:
    from stepscope.viewer.memory.queries.graphs import graphs_by_peak
    from stepscope.viewer.memory.queries.lifecycle_checks import check_mismatches
    from stepscope.viewer.memory.queries.mismatches import growth, lifetime_mismatches, recompute_mismatches
    from stepscope.viewer.memory.queries.run import run_peaks
    from stepscope.viewer.overview.queries.runs import list_runs

    runs, log = list_runs(trace), request.optional_id("log") or 0
    curve = run_curve_page(trace, request)
    minis, left = mini_curves(trace, MOST_GRAPHS)
    checks = check_mismatches(trace)
    return MemoryOverviewPage(
        runs=runs,
        log=log,
        curve=curve,
        peaks=run_peaks(trace),
        graphs=minis,
        graphs_left=left,
        growth=growth(trace),
        mismatches=lifetime_mismatches(trace)[:MOST_MISMATCHES],
        checks=checks[:MOST_MISMATCHES],
        recompute=recompute_mismatches(trace)[:MOST_MISMATCHES],
        missing=[] if curve is not None or checks or graphs_by_peak(trace) else [_why_nothing(trace)],
    )


def _why_nothing(trace: Trace) -> str:
    from stepscope.viewer.overview.queries.runs import list_runs

    if all(run.writer != "stepscope" for run in list_runs(trace)):
        return "PyTorch alone wrote this log: it holds neither schedules nor lifetimes of storages."
    return "No compiled graph told about its memory, or lifetimes were switched off."


def run_curve_page(trace: Trace, request: Request) -> RunCurve | None:
    from stepscope.viewer.memory.queries.steps import run_curve

    log = request.optional_id("log") or 0
    first, last = request.optional_id("first_step"), request.optional_id("last_step")
    return run_curve(trace, log, first, last, request.text("device"))


def run_curve_twin(trace: Trace, request: Request) -> RunCurve:
    found = run_curve_page(trace, request)
    if found is None:
        raise NotThere("This log has no lifetimes of storages in these steps.")
    return found


def live_twin(trace: Trace, request: Request) -> LiveCurve:
    """A window of the curve below the timeline."""
    from stepscope.viewer.memory.queries.run import live_curve

    width = max(1, min(request.number("width") or 1600, 10_000))
    window = request.number("start_ns"), request.number("end_ns")
    found = live_curve(trace, request.number("log", 0) or 0, *window, width, request.text("device"))
    if found is None:
        raise NotThere("This log has no lifetimes of storages.")
    return found


def graph_memory_page(trace: Trace, request: Request) -> GraphMemoryPage:
    from stepscope.viewer.memory.queries.graph import graph_memory, is_call, measured_calls
    from stepscope.viewer.memory.queries.graph_index import graph_places
    from stepscope.viewer.memory.queries.lifecycle_checks import check_mismatches
    from stepscope.viewer.memory.queries.mismatches import lifetime_mismatches

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
            raise NotThere(f"Call {call} of this trace is no measured call of graph {graph.graph}.")
        tell(f"What call {call} measured is not in the log.")
        call, memory = None, graph_memory(trace, graph.graph, None, subgraph)
    if subgraph is not None and memory is None:
        raise NotThere(f"Graph {graph.graph} has no subgraph “{subgraph[:80]}” whose memory was recorded.")
    by = request.text("by") or GROUPINGS[0]
    if by not in GROUPINGS:
        raise NotThere(f"“{by[:40]}” is no grouping: it must be one of {', '.join(GROUPINGS)}.")
    places = graph_places(trace, graph.graph)
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
        mismatches=part("Mismatches of lifetimes", [], lifetime_mismatches, trace, graph.graph)[:MOST_MISMATCHES],
        checks=part("Mismatches of PyTorch's own check", [], check_mismatches, trace, graph.graph)[:MOST_MISMATCHES],
        missing=missing(trace, graph, memory),
        against=beside,
        against_name=against,
        others=[row for row in rows if row.graph != graph.graph and row.log == graph.log][:400],
    )


def _graphs(trace: Trace, graph: int) -> tuple[GraphRow, list[GraphRow]]:
    from stepscope.viewer.graphs.queries.graphs import list_graphs

    rows = list_graphs(trace)
    found = next((row for row in rows if row.graph == graph), None)
    if found is None:
        raise NotThere(f"This trace holds no graph {graph}.")
    return found, rows


def _sources(memory: GraphMemory | None, places: GraphPlaces) -> dict[int, SourceLine]:
    known = {site: places.source(site) for site in (memory.kernels if memory else ())}
    return {site: source for site, source in known.items() if source is not None}


def _sources_beside(trace: Trace, beside: MemoryComparison | None) -> dict[int, SourceLine]:
    from stepscope.viewer.memory.queries.graph_index import graph_places

    return _sources(beside.right, graph_places(trace, beside.right.graph)) if beside else {}


def node_alive(trace: Trace, memory: GraphMemory, places: GraphPlaces, asked: int | None) -> NodeAlive:
    """What was alive at node `asked`; without one at the measured peak, else at the estimated one."""
    from stepscope.viewer.memory.queries.alive import alive_in_call
    from stepscope.viewer.memory.queries.graph import node_memory

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
        return "The node has no launch of its own, and none came before: shown is what was there at the first launch."
    return "The node has no launch of its own: shown is what was alive while the launch before it ran."


def _comparison(trace: Trace, graph: int, call: int | None, against: str) -> MemoryComparison:
    """`against` is a graph, or a graph and one of its calls: ``1`` or ``1.7``."""
    from stepscope.viewer.memory.queries.compare import compare_memory

    named = re.fullmatch(r"(\d{1,18})(?:\.(\d{1,18}))?", against)
    if named is None:
        raise NotThere(f"“{against[:40]}” names no graph to compare with: write a graph, or a graph, a dot and a call.")
    other, other_call = int(named[1]), int(named[2]) if named[2] else None
    found = compare_memory(trace, graph, other, call, other_call)
    if found is None:
        raise NotThere(f"Nothing about the memory of graph {graph} or graph {other} was recorded.")
    if other_call is not None and found.right.call is None:
        raise NotThere(f"Call {other_call} of this trace is no measured call of graph {other}.")
    return found


def missing(trace: Trace, graph: GraphRow, memory: GraphMemory | None) -> list[str]:
    """What the page cannot show, and why, as far as the log says."""
    from stepscope.viewer.memory.queries.graphs import has_lifetimes
    from stepscope.viewer.overview.queries.damage import not_recorded

    rows = [row for row in not_recorded(trace) if row.graph in (None, graph.graph) and row.log in (None, graph.log)]
    found = [_sentence(row) for row in rows if row.graph is not None or _is_about_memory(row)]
    if memory is None or memory.nodes is None:
        found.append(f"The schedule: {_why_no_schedule(graph)}")
    if memory is None or memory.call is None:
        found.append(f"Measured bytes: {_why_not_measured(graph, has_lifetimes(trace))}")
    elif memory.positions is not None and not memory.positions.allocator_position:
        found.append("The allocator's own figures: only the allocator of a CUDA device is asked for them.")
    return found


def _sentence(row: NotRecorded) -> str:
    return f"{row.what[:1].upper()}{row.what[1:]}: {row.why}"


def _is_about_memory(row: NotRecorded) -> bool:
    return any(word in row.what for word in ("memory", "lifetime", "storage", "schedule", "allocator"))


def _why_no_schedule(graph: GraphRow) -> str:
    if graph.cached:
        return "the graph came from a cache: the scheduler did not run, and no sidecar of the recorder lay beside it."
    if graph.launch_sites is None:
        return graph.not_recorded or "only a log that stepscope recorded holds it."
    return "the log has no record of it."


def _why_not_measured(graph: GraphRow, followed: bool) -> str:
    if graph.not_recorded:
        return graph.not_recorded
    if not followed:
        return "storages were not followed in this run (lifetimes are off, or PyTorch alone wrote the log)."
    return "no call of this graph was seen." if not graph.calls else "no call of this graph was followed."


def recompute_page(trace: Trace, request: Request) -> RecomputePage:
    from stepscope.viewer.memory.queries.recompute import recompute_detail, recompute_mismatches

    asked = request.id("recompute")
    detail = recompute_detail(trace, asked)
    if detail is None:
        raise NotThere(f"This trace holds no recompute mismatch {asked}.")
    known = [row.recompute for row in recompute_mismatches(trace)]
    place = known.index(asked)
    return RecomputePage(
        detail=detail,
        verdict=recompute_verdict(detail.row),
        previous=known[place - 1] if place else None,
        next=known[place + 1] if place + 1 < len(known) else None,
    )


def recompute_verdict(row: RecomputeRow) -> str:
    """In a sentence whether the allowed budget explains it."""
    after, allowed, before = (
        f"{format_bytes(size)} ({size:,} B)"
        for size in (row.peak_after_bytes, row.allowed_peak_bytes, row.peak_before_bytes)
    )
    over = row.peak_after_bytes - row.allowed_peak_bytes
    if row.is_explained:
        return (
            f"No error: only the peak differs, and the recomputed {after} is within the allowed {allowed}. "
            f"The budget lets the pass add {format_bytes(row.allowed_peak_bytes - row.peak_before_bytes)} to {before}."
        )
    if over > 0:
        return f"Not explained: the recomputed peak of {after} is {over:,} B over the allowed {allowed}."
    return (
        f"Not explained by the budget: the peak of {after} is within the allowed {allowed}, "
        "but figures that the pass carried along are wrong."
    )
