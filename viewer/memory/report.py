"""Collects a report's memory pages: the run, the graphs in findings and the graph with the highest peak."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from stepscope.viewer.memory import graph_page
from stepscope.viewer.memory import page as memory_page
from stepscope.viewer.memory.filters import plot_leaks, plot_memory, plot_places, shortened
from stepscope.viewer.memory.queries.run import live_curve
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.report.contents import Contents
from stepscope.viewer.web.addresses import NotThere, Request
from stepscope.viewer.web.parts import part

if TYPE_CHECKING:
    from stepscope.viewer.store.trace import Trace

MOST_GRAPHS = 24
MOST_RECOMPUTE = 24
MOST_LISTED = 40
"""Maximum number of model lines, mismatches and scheduled buffers that are listed for each graph."""
MOST_MINI_CURVES = 6
LIVE_WIDTH = 400
"""Width in points of the curve below each timeline."""
KINDS = ("lifetime_mismatch", "recompute_mismatch", "estimate_gap", "growth")


@dataclass
class ReportedMemory:
    """Contexts of the memory pages; empty if the trace has no memory records."""

    run: memory_page.MemoryOverviewPage | None = None
    graphs: list[graph_page.GraphMemoryPage] = field(default_factory=list)
    recompute: list[memory_page.RecomputePage] = field(default_factory=list)


def collect(trace: Trace, contents: Contents) -> None:
    """Add the memory of the run and of some graphs to the report, and live bytes below each timeline."""
    findings = contents.overview.findings
    contents.shown["memory"] = memory = part("Memory", ReportedMemory(), _collect, trace, findings)
    contents.shown["live"] = {}
    part("The memory of the steps", None, _collect_live, trace, contents, memory)


def _collect_live(trace: Trace, contents: Contents, memory: ReportedMemory) -> None:
    """Add live bytes, keyed by log and step, and the small curves of the first page."""
    if memory.run is None:
        return
    of_run = len(memory.run.graphs) + memory.run.graphs_left
    contents.say_left_out(of_run, len(memory.graphs), "memory curves of graphs")
    contents.mini_curves = memory.run.graphs[:MOST_MINI_CURVES]
    contents.mini_curves_left = of_run - len(contents.mini_curves)
    for step, timeline in contents.shown.get("steps", []):
        window = timeline.window_start_ns, timeline.window_end_ns
        curve = live_curve(trace, timeline.log, *window, LIVE_WIDTH)
        if curve is not None:
            contents.shown["live"][f"{step.log} {step.step}"] = curve


def data(contents: Contents) -> dict[str, Any]:
    """Return what the report's scripts draw: curves by address, and live bytes by log and step."""
    return {"memory": _plots(contents.shown["memory"]), "live": contents.shown["live"]}


def _collect(trace: Trace, findings: list[Finding]) -> ReportedMemory:
    memory = ReportedMemory()
    run = memory_page.memory_page(trace, Request({}, {}))
    if run.missing and not run.graphs:
        return memory
    memory.run = replace(
        run,
        mismatches=run.mismatches[:MOST_LISTED],
        checks=run.checks[:MOST_LISTED],
        recompute=run.recompute[:MOST_LISTED],
    )
    named = [finding for finding in findings if finding.kind in KINDS]
    asked = [_graph_asked(finding) for finding in named if finding.graph is not None]
    asked += [{"graph": str(row.graph)} for row in run.graphs[:1]]
    for path in asked:
        _add_graph(trace, memory, path)
    recompute = [finding.page.rpartition("/")[2] for finding in named if finding.kind == "recompute_mismatch"]
    for number in recompute[:MOST_RECOMPUTE]:
        asked_for = Request({"recompute": number}, {})
        page = part(f"Recompute mismatch {number}", None, memory_page.recompute_page, trace, asked_for)
        memory.recompute += [page] if page else []
    shown = {page.detail.row.recompute for page in memory.recompute}
    memory.recompute = [
        replace(
            page,
            previous=page.previous if page.previous in shown else None,
            next=page.next if page.next in shown else None,
        )
        for page in memory.recompute
    ]
    return memory


def _graph_asked(finding: Finding) -> dict[str, str]:
    """Return the graph of a finding, and the call in the address of its page if there is one."""
    from urllib.parse import parse_qsl, urlsplit

    parts = urlsplit(finding.page)
    query = dict(parse_qsl(parts.query)) if parts.path.endswith("/memory") else {}
    return {"graph": str(finding.graph), **({"call": query["call"]} if "call" in query else {})}


def _add_graph(trace: Trace, memory: ReportedMemory, asked: dict[str, str]) -> None:
    known = {page.graph.graph for page in memory.graphs}
    if len(memory.graphs) >= MOST_GRAPHS or int(asked["graph"]) in known:
        return
    query = {name: value for name, value in asked.items() if name != "graph"}
    try:
        page = part(
            f"The memory of graph {asked['graph']}",
            None,
            graph_page.graph_memory_page,
            trace,
            Request({"graph": asked["graph"]}, query),
        )
    except NotThere:
        return
    if page and page.memory is not None:
        memory.graphs.append(replace(_shortened(page), memory=shortened(page.memory)))


def _shortened(page: graph_page.GraphMemoryPage) -> graph_page.GraphMemoryPage:
    at = page.at
    if at is not None and at.node is not None:
        node = at.node
        at = replace(
            at,
            node=replace(
                node, expected_alive=node.expected_alive[:MOST_LISTED], mismatches=node.mismatches[:MOST_LISTED]
            ),
        )
    return replace(
        page,
        at=at,
        calls=[],
        others=[],
        mismatches=page.mismatches[:MOST_LISTED],
        checks=page.checks[:MOST_LISTED],
    )


def _plots(memory: ReportedMemory) -> dict[str, dict[str, Any]]:
    """Return the data of the curves, keyed by the address of their page."""
    found: dict[str, dict[str, Any]] = {}
    for page in memory.graphs:
        if page.memory is not None:
            found[f"/graphs/{page.graph.graph}/memory"] = {
                "left": plot_memory(page.memory),
                "places": plot_places(page.sources, page.memory),
                "marks": page.marks,
            }
    for recompute in memory.recompute:
        found[f"/recompute/{recompute.detail.row.recompute}"] = {"recompute": recompute.detail}
    if memory.run is not None and memory.run.curve is not None:
        found["/memory"] = {"run": memory.run.curve, "leaks": plot_leaks(memory.run.leaks)}
    return found
