"""One HTML file with the whole story, for a ticket: no server, no network, the same templates and scripts."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl

from markupsafe import Markup

from stepscope.viewer.compiles.rows import CompileDetail
from stepscope.viewer.findings.crash.launch_deaths import LaunchDeath, launch_deaths
from stepscope.viewer.findings.evidence import compile_page
from stepscope.viewer.graphs.page import GraphPage, graph_page
from stepscope.viewer.graphs.rows import GraphDetail
from stepscope.viewer.memory import report as memory_report
from stepscope.viewer.overview.problems_page import ProblemsPage, problems_page
from stepscope.viewer.overview.rows import Overview, StepRow
from stepscope.viewer.ranks import page as ranks_page
from stepscope.viewer.ranks.page import RankDifferencePage, RanksPage
from stepscope.viewer.redaction.redactor import Redactor
from stepscope.viewer.report.links import route_of, without_dead_links
from stepscope.viewer.steps.page import LaunchPage, launch_page_of, live_page
from stepscope.viewer.steps.rows import CallRow, Timeline
from stepscope.viewer.text.formats import to_json
from stepscope.viewer.text.highlight import Line, highlight
from stepscope.viewer.values import report as values_report
from stepscope.viewer.web import assets, render
from stepscope.viewer.web.addresses import Request
from stepscope.viewer.web.frame import frame
from stepscope.viewer.web.parts import failures, part

if TYPE_CHECKING:
    from stepscope.viewer.store.trace import Trace

T = TypeVar("T")
MOST_STEPS = 16
MOST_LAUNCHES = 20_000
"""In all timelines together."""
MOST_PANELS = 320
"""Launches described in full; the calls that repeat them share the description."""
SCRIPTS = ("#js/core/page.js", "#js/report/page.js")
"""What a report begins with."""
MOST_GRAPHS = 24
MOST_COMPILES = 32
MOST_NAMED = 200
"""Pages of one sort that findings lead to: these come before the others, and beside their number."""
MOST_CODE_CHARS = 600_000


@dataclass
class Contents:
    """What a report holds, and in plain words what it leaves out."""

    overview: Overview
    problems: ProblemsPage
    steps: list[tuple[StepRow, Timeline]] = field(default_factory=list)
    graphs: list[GraphPage] = field(default_factory=list)
    compiles: list[CompileDetail] = field(default_factory=list)
    panels: list[list[LaunchPage | None]] = field(default_factory=list)
    """Launches of one call in order, None for one that cannot be described; calls that do the same share them."""
    calls: list[tuple[int, list[int]]] = field(default_factory=list)
    """Of every call which panels describe it, and its launches."""
    deaths: dict[int, LaunchDeath] = field(default_factory=dict)
    values: values_report.Values = field(default_factory=values_report.Values)
    memory: memory_report.Memory = field(default_factory=memory_report.Memory)
    ranks: RanksPage | None = None
    """None: no finding tells of a difference between them."""
    differences: list[RankDifferencePage] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """Sentences about the parts that could not be made."""


def render_report(trace: Trace, *, redact: bool = False, note: str | None = None) -> str:
    """The file's text, with `note` on its first page. `redact`: a text stands in it only with a proof that no program,
    file or machine named it; a note does not."""
    from stepscope.viewer.overview.summary import summary

    contents, answer = collect(trace), summary(trace)
    if redact:
        redactor = Redactor()
        contents, answer = redactor.redact(contents), redactor.redact(answer)
        contents.left_out += ["source and generated code", *(["the note"] if note else [])]
    code = wrappers([page.detail for page in contents.graphs], contents.left_out)
    data = {
        "steps": [timeline for _, timeline in contents.steps],
        "panels": [[without_values(page) for page in panels] for panels in contents.panels],
        "values": contents.values.launches if contents.values.recorded else None,
        "deaths": contents.deaths,
        "plots": values_report.plots(contents.values),
        "memory": memory_report.plots(contents.memory),
        "live": contents.memory.live,
        "calls": contents.calls,
        "spans": {f"{detail.row.log} {detail.row.compile_id}": detail.spans for detail in contents.compiles},
        "wrappers": code,
    }
    template = render.environment(root="#", redacted=redact).get_template("report/page.html")
    html = template.render(
        contents=contents,
        note=None if redact else note,
        frame=frame(contents.overview),
        section="Overview",
        summary=answer,
        css=Markup(assets.content(assets.SHEET).decode()),
        theme=Markup(assets.content("js/core/theme.js").decode()),
        scripts=SCRIPTS,
        imports=assets.inlined_import_map(*SCRIPTS),
        packed=packed(data),
    )
    return without_dead_links(html, {graph: len(lines) for graph, lines in code.items()})


def without_values(page: LaunchPage | None) -> LaunchPage | None:
    """Calls share panels, but not their values or how their process died: those stand apart, by launch."""
    return page and replace(page, launch=replace(page.launch, values=[]), death=None)


def packed(data: Any) -> str:
    raw = to_json(data).encode()
    return base64.b64encode(gzip.compress(raw, 9, mtime=0)).decode()


def collect(trace: Trace) -> Contents:
    """What the report of a trace holds; a part that fails costs itself and is named."""
    with failures() as failed:
        contents = collect_parts(trace)
    contents.failed = failed
    return contents


def collect_parts(trace: Trace) -> Contents:
    from stepscope.viewer.compiles.queries.compiles import compile_detail, list_compiles
    from stepscope.viewer.graphs.queries.graphs import list_graphs
    from stepscope.viewer.overview.queries.overview import overview

    asked = Request({}, {})
    contents = Contents(overview(trace), problems_page(trace, asked))
    collect_steps(trace, contents)
    contents.deaths = part("How processes died", {}, launch_deaths, trace)
    named = {route_of(finding.page) for finding in contents.overview.findings}
    graphs = sorted(part("Graphs", [], list_graphs, trace), key=lambda row: -(row.launches or 0))
    compiles = part("Compiles", [], list_compiles, trace)
    for row in chosen(graphs, MOST_GRAPHS, lambda row: f"/graphs/{row.graph}" in named, lambda row: row.graph):
        page = part(f"Graph {row.graph}", None, graph_page, trace, Request({"graph": str(row.graph)}, {}))
        contents.graphs += [page] if page else []
    places = {(row.log, row.compile_id): place for place, row in enumerate(compiles)}
    for compiled in chosen(
        compiles,
        MOST_COMPILES,
        lambda row: compile_page(row.log, row.compile_id) in named,
        lambda row: places[row.log, row.compile_id],
    ):
        name = f"Compile {compiled.compile_id}"
        detail = part(name, None, compile_detail, trace, compiled.log, compiled.compile_id)
        contents.compiles += [detail] if detail else []
    described = (page for panels in contents.panels for page in panels if page)
    found = contents.overview.findings
    contents.values = part("Values", values_report.Values(), values_report.collect, trace, found, described)
    contents.memory = part("Memory", memory_report.Memory(), memory_report.collect, trace, found)
    part("The memory of the steps", None, collect_live, trace, contents)
    part("Differences between ranks", None, collect_ranks, trace, contents)
    say_left_out(contents, len(contents.values.rows), len(contents.values.kernels), "kernels")
    if contents.values.recorded:
        contents.left_out.append("values of most launches, versions of most buffers")
    say_left_out(contents, len(contents.overview.steps), len(contents.steps), "steps")
    say_left_out(contents, len(graphs), len(contents.graphs), "graphs")
    say_left_out(contents, len(compiles), len(contents.compiles), "compiles")
    if contents.overview.counts.records:
        contents.left_out.append("the records themselves and their payloads")
    return contents


def chosen(
    rows: Sequence[T], most: int, is_named: Callable[[T], bool], place: Callable[[T], tuple[int, ...] | int]
) -> list[T]:
    """The rows that findings lead to, and of the others the first, in their own order."""
    named, others = [row for row in rows if is_named(row)], [row for row in rows if not is_named(row)]
    return sorted([*named[:MOST_NAMED], *others[: max(0, most - len(named))]], key=place)


def collect_ranks(trace: Trace, contents: Contents) -> None:
    """Both sides of each difference that a finding tells of."""
    found = [finding.page for finding in contents.overview.findings if finding.kind == "rank_divergence"]
    for page in dict.fromkeys(found):
        path, _, query = page.partition("?")
        if path == "/ranks/difference":
            contents.differences.append(ranks_page.difference_page(trace, Request({}, dict(parse_qsl(query)))))
    if contents.differences:
        contents.ranks = ranks_page.ranks_page(trace, Request({}, {}))


def say_left_out(contents: Contents, there: int, shown: int, what: str) -> None:
    if shown < there:
        contents.left_out.append(f"{there - shown:,} of {there:,} {what}")


def collect_live(trace: Trace, contents: Contents) -> None:
    """Live bytes below each timeline."""
    if contents.memory.run is None:
        return
    shown, there = len(contents.memory.graphs), len(contents.memory.run.graphs) + contents.memory.run.graphs_left
    say_left_out(contents, there, shown, "memory curves of graphs")
    for step, timeline in contents.steps:
        curve = live_page(trace, timeline, memory_report.LIVE_WIDTH)
        if curve is not None:
            contents.memory.live[f"{step.log} {step.step}"] = curve


def collect_steps(trace: Trace, contents: Contents) -> None:
    """Steps with findings first, then from the first on, as far as the budget goes."""
    from stepscope.viewer.steps.queries.steps import timeline

    found = {route_of(finding.page) for finding in contents.overview.findings}
    order = sorted(contents.overview.steps, key=lambda row: (row.step, row.log))
    rows = chosen(
        order,
        MOST_STEPS,
        lambda row: f"/steps/{row.step}?log={row.log}" in found,
        lambda row: (f"/steps/{row.step}?log={row.log}" not in found, row.step, row.log),
    )
    room = MOST_LAUNCHES
    shown = []
    for row in rows:
        # At least the bins of a small picture, so that every step that is listed can be seen.
        width = max(200, min(room, row.launch_rows))
        picture = part(f"Step {row.step}", None, timeline, trace, row.log, row.step, width=width)
        if picture is None:
            continue
        room = max(0, room - len(picture.launches.launch))
        shown.append((row, picture))
    collect_panels(trace, contents, [picture for _, picture in shown])
    contents.steps = sorted(shown, key=lambda pair: (pair[0].log, pair[0].step))


def collect_panels(trace: Trace, contents: Contents, timelines: Iterable[Timeline]) -> None:
    """Full descriptions of launches, made once for all calls that launch the same sites in the same order."""
    known: dict[tuple[object, ...], int] = {}
    room, missing = MOST_PANELS, 0
    dynamic = {row.graph for row in contents.overview.graphs if row.dynamic}
    for timeline in timelines:
        for call, launches in launches_of_calls(timeline):
            sites = tuple(site for _, site in launches)
            key = (call.graph, call.call if call.graph in dynamic else None, sites)
            if key not in known:
                known[key] = len(contents.panels)
                contents.panels.append(
                    [part(f"Launch {launch}", None, launch_page_of, trace, launch) for launch, _ in launches[:room]]
                )
                room -= len(contents.panels[-1])
            contents.calls.append((known[key], [launch for launch, _ in launches]))
            missing += len(launches) - len(contents.panels[known[key]])
    if missing:
        contents.left_out.append(f"arguments and code of {missing:,} launches")


def launches_of_calls(timeline: Timeline) -> Iterable[tuple[CallRow, list[tuple[int, int]]]]:
    """Outermost calls with their launches (id, site), where the timeline holds each of them singly."""
    columns = timeline.launches
    starts = (timeline.window_start_ns + start for start in columns.start_ns)
    launches = sorted(zip(columns.launch, columns.site, columns.thread, starts, columns.count, strict=True))
    for call in timeline.calls:
        end = end_of(call, timeline)
        inside = [row for row in launches if row[2] == call.thread and call.start_ns <= row[3] <= end]
        if call.depth == 0 and inside and all(row[4] == 1 for row in inside):
            yield call, [(launch, site) for launch, site, *_ in inside]


def end_of(call: CallRow, timeline: Timeline) -> int:
    """Where it is not known, a call ends before the next one of its thread begins."""
    if call.duration_ns is not None:
        return call.start_ns + call.duration_ns
    later = [
        other.start_ns
        for other in timeline.calls
        if other.thread == call.thread and other.depth == call.depth and other.start_ns > call.start_ns
    ]
    return min(later, default=timeline.window_end_ns + 1) - 1


def wrappers(details: Iterable[GraphDetail], left_out: list[str]) -> dict[int, list[tuple[int, Line]]]:
    """Coloured source of the graphs' wrappers, as much as there is room for."""
    found: dict[int, list[tuple[int, Line]]] = {}
    room, missing = MOST_CODE_CHARS, 0
    for detail in details:
        if detail.code is None:
            continue
        if len(detail.code) > room:
            missing += 1
            continue
        room -= len(detail.code)
        found[detail.row.graph] = list(enumerate(highlight(detail.code, "python"), 1))
    if missing:
        left_out.append(f"generated code of {missing:,} graphs")
    return found
