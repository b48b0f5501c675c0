"""Chooses the values in a report: those of launches that findings name and of some others, and a few pages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.report.contents import MOST_VALUES, Contents
from stepscope.viewer.report.links import route_of
from stepscope.viewer.steps.rows import LaunchDetail
from stepscope.viewer.values import page as values_page
from stepscope.viewer.values.filters import curve_query, magnitudes_query, plotted
from stepscope.viewer.values.limits_page import LimitsPage, limits_page_of
from stepscope.viewer.values.page import BufferPage, BuffersPage, CurvePage, KernelPage, MagnitudesPage, ValuesPage
from stepscope.viewer.values.queries.kernels import KernelRow
from stepscope.viewer.values.rows import HEALTH, ArgumentValues, BufferDetail, BufferRow
from stepscope.viewer.web.addresses import NotThere, Request, slug
from stepscope.viewer.web.parts import part

if TYPE_CHECKING:
    from stepscope.viewer.store.trace import Trace

MOST_KERNELS = 10
MOST_BUFFERS = 24
MOST_LISTS, MOST_LISTED = 24, 60
"""Maximum number of lists, one for each graph, and of buffers in each."""
MOST_CURVES = 10
MOST_POINTS = 400
MOST_LOGS = 8
MOST_ROWS, MOST_COLUMNS = 300, 120
"""Maximum size of a heat map."""
MOST_TENSORS, MOST_MAP_STEPS = 60, 60
"""Maximum size of a map of magnitudes."""


@dataclass
class ReportedValues:
    """Pages about values; the lists are empty if the trace has no values."""

    recorded: bool = False
    rows: list[KernelRow] = field(default_factory=list)
    limits: LimitsPage | None = None
    kernels: list[KernelPage] = field(default_factory=list)
    buffers: list[BufferPage] = field(default_factory=list)
    lists: list[tuple[BuffersPage, int]] = field(default_factory=list)
    """For each graph, its worst buffers and their total number."""
    curves: list[CurvePage] = field(default_factory=list)
    maps: list[ValuesPage] = field(default_factory=list)
    magnitudes: list[MagnitudesPage] = field(default_factory=list)
    """Maps that findings about trends link to."""
    launches: dict[int, list[ArgumentValues]] = field(default_factory=dict)


def collect(trace: Trace, contents: Contents) -> None:
    """Choose the values of launches that findings name, and of launches whose panel the report has."""
    described = [page.launch for panels in contents.shown.get("panels", []) for page in panels if page]
    values = part("Values", ReportedValues(), _collect, trace, contents.overview.findings, described)
    contents.shown["values"] = values
    contents.say_left_out(len(values.rows), len(values.kernels), "kernels")
    if values.recorded:
        contents.left_out.append("values of most launches, versions of most buffers")


def data(contents: Contents) -> dict[str, Any]:
    """Return the data for the report's scripts: values by launch, and plots by address."""
    values = contents.shown["values"]
    return {"values": values.launches if values.recorded else None, "plots": _plots(values)}


def _collect(trace: Trace, findings: list[Finding], described: Iterable[LaunchDetail]) -> ReportedValues:
    """Return the chosen values; `described` are the launches whose panel the report has."""
    from stepscope.viewer.graphs.queries.launches import launch_detail
    from stepscope.viewer.values.queries.kernels import kernel_rows

    rows = kernel_rows(trace)
    values = ReportedValues(rows=rows, limits=limits_page_of(trace, rows))
    named = list(dict.fromkeys(finding.launch for finding in findings if finding.launch is not None))
    details = [detail for launch in named[:MOST_VALUES] if (detail := launch_detail(trace, launch)) is not None]
    details += described
    for detail in details:
        if detail.values and len(values.launches) < MOST_VALUES:
            values.launches.setdefault(detail.launch, detail.values)
    values.recorded = bool(values.launches)
    _kernels(trace, values, [finding.kernel for finding in findings if finding.kernel])
    _buffers(trace, values, findings, details)
    if values.recorded:
        part("Curves of values", None, _curves, trace, values, details)
        part("The heat map of values", None, _maps, trace, values)
        part("The maps of magnitudes", None, _magnitudes, trace, values, findings)
    return values


def _kernels(trace: Trace, values: ReportedValues, named: list[str]) -> None:
    by_time = sorted(values.rows, key=lambda row: -(row.device_duration_ns or row.duration_ns or 0))
    there = {row.kernel for row in values.rows}
    chosen = [name for name in dict.fromkeys([*named, *(row.kernel for row in by_time)]) if name in there]
    found = [part(f"Kernel {name}", None, values_page.kernel_page_of, trace, name) for name in chosen[:MOST_KERNELS]]
    values.kernels = [page for page in found if page]


def _buffers(trace: Trace, values: ReportedValues, findings: list[Finding], details: Iterable[Any]) -> None:
    """Add pages of buffers: those that findings name, then the worst, then those that shown launches use."""
    from stepscope.viewer.graphs.queries.graphs import list_graphs
    from stepscope.viewer.values.queries.buffers import buffer_rows

    graphs = sorted(list_graphs(trace), key=lambda row: -(row.launches or 0))[:MOST_LISTS]
    lists = [(row, buffer_rows(trace, row.graph)) for row in sorted(graphs, key=lambda row: row.graph)]
    wanted = [(finding.graph, finding.buffer) for finding in findings if finding.graph is not None and finding.buffer]
    bad = [row for _, rows in lists for row in rows if _badness(row) < HEALTH.index("zero")]
    wanted += [(row.graph, row.buffer) for row in sorted(bad, key=_badness)]
    wanted += [(detail.graph.graph, row.buffer) for detail in details for row in detail.site.arguments if row.buffer]
    shown: set[tuple[int, str]] = set()
    for graph, buffer in dict.fromkeys(wanted if values.recorded else []):
        if len(values.buffers) == MOST_BUFFERS:
            break
        try:
            page = part(f"Buffer {buffer} of graph {graph}", None, values_page.buffer_page_of, trace, graph, buffer)
        except NotThere:
            continue
        if page is None:
            continue
        # Several names can stand for one buffer; the address of the name in the finding must still lead to it.
        if page.detail.versions and (graph, buffer) not in shown:
            shown.add((graph, buffer))
            row = replace(page.detail.row, buffer=buffer)
            values.buffers.append(replace(page, detail=shortened(replace(page.detail, row=row))))
    for graph_row, rows in lists:
        first = [row for row in rows if (row.graph, row.buffer) in shown]
        rest = sorted((row for row in rows if (row.graph, row.buffer) not in shown), key=_badness)
        page_of = BuffersPage(graph_row, sorted([*first, *rest][:MOST_LISTED], key=_badness))
        values.lists.append((page_of, len(rows)))


def _badness(row: BufferRow) -> int:
    return HEALTH.index(row.health)


def shortened(detail: BufferDetail) -> BufferDetail:
    """Return `detail` with its first `MOST_POINTS` versions."""
    columns = {name: getattr(detail, name)[:MOST_POINTS] for name in ("versions", "steps", "start_ns", "kernels")}
    return replace(detail, **columns)


def _curves(trace: Trace, values: ReportedValues, details: Iterable[Any]) -> None:
    links = (link for detail in details for link in values_page.other_curves(detail))
    asked = dict.fromkeys(
        values_page.CurveAsked(link.site, link.argument, link.item, link.part, link.moment) for link in links
    )
    for curve in list(asked)[:MOST_CURVES]:
        page = part("A curve of values", None, values_page.curve_page_of, trace, curve)
        if page and len(page.curve.launch) <= MOST_POINTS * 4:
            values.curves.append(page)


def _maps(trace: Trace, values: ReportedValues) -> None:
    from stepscope.viewer.overview.queries.runs import list_runs
    from stepscope.viewer.values.queries.heatmap import has_outputs, heat_map

    for run in list_runs(trace)[:MOST_LOGS]:
        if has_outputs(trace, run.log):
            heat = heat_map(trace, run.log, most_rows=MOST_ROWS, most_columns=MOST_COLUMNS, launches=True)
            values.maps.append(values_page.values_page_of(trace, heat))


def _magnitudes(trace: Trace, values: ReportedValues, findings: Iterable[Finding]) -> None:
    links = (link.page for finding in findings for link in finding.links if link.page.startswith("/magnitudes?"))
    for page in {route_of(link): link for link in reversed([*links])}.values():
        asked = Request({}, dict(parse_qsl(urlsplit(page).query)))
        values.magnitudes.append(values_page.magnitudes_page(trace, asked, MOST_TENSORS, MOST_MAP_STEPS))


def _plots(values: ReportedValues) -> dict[str, dict[str, Any]]:
    """Return the data of each plot by the address of its page."""
    found: dict[str, dict[str, Any]] = {}
    for page in values.buffers:
        row = page.detail.row
        found[f"/graphs/{row.graph}/buffers/{slug(row.buffer)}"] = {
            "buffer": plotted(page.detail),
            "log": page.log,
        }
    for curve in values.curves:
        found[f"/curves?{curve_query(curve.curve)}"] = {"curve": curve.curve, "log": curve.graph.log}
    for one in values.magnitudes:
        shown_map = {"map": one.map, "chosen": one.chosen, "chosen_step": one.chosen_step}
        found[f"/magnitudes?{magnitudes_query(one.map)}"] = shown_map
    for shown in values.maps:
        found[f"/values?log={shown.heat.log}"] = {"heat": shown.heat}
    return found
