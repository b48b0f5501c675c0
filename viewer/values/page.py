"""The pages of kernels, buffers, the heat map and curves: their contexts, builders and addresses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from stepscope.viewer.graphs.queries.graphs import list_graphs
from stepscope.viewer.graphs.queries.launches import launch_detail
from stepscope.viewer.graphs.queries.named_sites import named_sites
from stepscope.viewer.graphs.rows import GraphRow, SiteRow
from stepscope.viewer.overview.queries.runs import list_runs, log_or_first
from stepscope.viewer.overview.rows import RunRow
from stepscope.viewer.steps.rows import LaunchDetail
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.filters import CHOICES
from stepscope.viewer.values.queries import heatmap, magnitudes
from stepscope.viewer.values.queries.buffers import buffer_detail, buffer_rows
from stepscope.viewer.values.queries.curves import value_curve
from stepscope.viewer.values.queries.heatmap import Window, has_outputs, heat_map, worst_sites
from stepscope.viewer.values.queries.kernel_limits import KernelLimit, kernel_limits
from stepscope.viewer.values.queries.kernels import (
    LAUNCH_ORDERS,
    KernelDetail,
    KernelRow,
    kernel_detail,
    kernel_rows,
    launches_at,
)
from stepscope.viewer.values.queries.magnitudes import magnitude_map
from stepscope.viewer.values.rows import (
    BufferDetail,
    BufferRow,
    HeatMap,
    KernelLaunch,
    MagnitudeMap,
    ValueCurve,
    WorstSite,
)
from stepscope.viewer.web.addresses import Download, File, NotThere, Page, Redirect, Request
from stepscope.viewer.web.csv_file import csv_file
from stepscope.viewer.web.order import Order, order_of, order_parameters
from stepscope.viewer.web.parameters import (
    ARGUMENT,
    BUFFER,
    FIRST_STEP,
    GRAPH,
    KERNEL,
    LAST_STEP,
    LOG,
    SITE,
    STEP,
    number,
    one_of,
    text,
)

NAME = text("name", "An ATen operator, an FX node, a scheduler node, or a line of model source such as model.py:12.")
FIRST_LAUNCHES = Order(None, reverse=False)
MOMENTS = ("after", "before")
WINDOW = ("first_site", "last_site", "first_step", "last_step")


@dataclass(frozen=True)
class BuffersPage:
    graph: GraphRow
    buffers: list[BufferRow]


@dataclass(frozen=True)
class BufferPage:
    detail: BufferDetail
    log: int


@dataclass(frozen=True)
class KernelsPage:
    kernels: list[KernelRow]


MOST_LAUNCHES = 500
"""Maximum number of launches that are listed."""


@dataclass(frozen=True)
class SitesPage:
    name: str | None
    sites: list[SiteRow]
    """Launch sites that compute what has this name."""
    kernels: dict[int, str]
    """Kernel of each site."""
    launches: list[KernelLaunch]
    """The first launches of these sites in order of time."""
    total_launches: int


@dataclass(frozen=True)
class KernelPage:
    detail: KernelDetail
    order: Order
    """The order of the launches."""
    limit: KernelLimit | None
    """None if the kernel was never launched, or is a subgraph."""


@dataclass(frozen=True)
class ValuesPage:
    heat: HeatMap
    worst: list[WorstSite]
    """Launch sites of the whole log whose output was ever worse than zeros, worst first."""
    runs: list[RunRow]
    recorded: bool
    """Whether the log has statistics of any output."""


@dataclass(frozen=True)
class MagnitudesPage:
    map: MagnitudeMap
    chosen: int | None
    """The row of the map whose tensor the address names."""
    chosen_step: int | None
    runs: list[RunRow]


@dataclass(frozen=True)
class CurveLink:
    """The address of another curve, and its argument."""

    site: int
    argument: int
    item: int | None
    part: str | None
    moment: str
    name: str
    shown_as: str
    """``before`` or ``after`` the launch. `moment` may differ: an input is often read after its writer."""


@dataclass(frozen=True)
class CurvePage:
    curve: ValueCurve
    statistic: str
    """The statistic that is shown first."""
    site: SiteRow
    graph: GraphRow
    others: list[CurveLink]
    """Curves of the arguments of the same launch."""


class CurveAsked(NamedTuple):
    """The argument that the address of a curve names."""

    site: int
    argument: int
    item: int | None
    part: str | None
    moment: str


def kernels_page(trace: Trace, request: Request) -> KernelsPage:
    return KernelsPage(kernel_rows(trace))


def sites_page(trace: Trace, request: Request) -> SitesPage:
    name = request.text("name")
    sites = named_sites(trace, name) if name else []
    kernels = {site.site: site.kernel for site in sites}
    launches = launches_at(trace, list(kernels), MOST_LAUNCHES)
    return SitesPage(name, sites, kernels, launches, sum(site.launches or 0 for site in sites))


def kernel_page(trace: Trace, request: Request) -> KernelPage:
    return kernel_page_of(trace, request.name("kernel"), order_of(request, LAUNCH_ORDERS, "Launches"))


def kernel_page_of(trace: Trace, kernel: str, order: Order = FIRST_LAUNCHES) -> KernelPage:
    detail = kernel_detail(trace, kernel, sort=order.sort, is_down=order.reverse)
    if detail is None:
        raise NotThere(f"This trace contains no kernel “{kernel[:200]}”.")
    return KernelPage(detail, order, next(iter(kernel_limits(trace, [detail.row])), None))


def buffers_page(trace: Trace, request: Request) -> BuffersPage:
    row = _graph(trace, request.id("graph"))
    return BuffersPage(row, buffer_rows(trace, row.graph))


def buffer_page(trace: Trace, request: Request) -> BufferPage:
    return buffer_page_of(trace, request.id("graph"), request.name("buffer"))


def buffer_page_of(trace: Trace, graph: int, buffer: str) -> BufferPage:
    row = _graph(trace, graph)
    detail = buffer_detail(trace, graph, buffer)
    if detail is None:
        raise NotThere(f"Graph {graph} of this trace contains no buffer “{buffer[:200]}”.")
    return BufferPage(detail, row.log)


def _graph(trace: Trace, graph: int) -> GraphRow:
    found = next((row for row in list_graphs(trace) if row.graph == graph), None)
    if found is None:
        raise NotThere(f"This trace contains no graph {graph}.")
    return found


def values_page(trace: Trace, request: Request) -> ValuesPage:
    log, window = heat_window(trace, request)
    return values_page_of(trace, heat_map(trace, log, window))


def values_page_of(trace: Trace, heat: HeatMap) -> ValuesPage:
    return ValuesPage(heat, worst_sites(trace, heat.log), list_runs(trace), has_outputs(trace, heat.log))


def heat_window(trace: Trace, request: Request) -> tuple[int, Window]:
    """Return the log and the window of its map that an address names; without a log, the first one with values.
    Raises NotThere if there is no such part."""
    logs = [run.log for run in list_runs(trace)]
    asked = request.optional_id("log")
    log = next((one for one in logs if has_outputs(trace, one)), log_or_first(trace, None)) if asked is None else asked
    if log not in logs:
        raise NotThere(f"This trace contains no log {log}.")
    window = Window(*(request.optional_id(name) for name in WINDOW))
    for first, last in (window[:2], window[2:]):
        if first is not None and last is not None and first > last:
            raise NotThere(f"The window from {first} to {last} is empty.")
    return log, window


def worst_launch(trace: Trace, request: Request) -> str:
    """Return the address of the worst launch in a cell of the heat map."""
    found = heatmap.worst_launch(trace, *heat_window(trace, request))
    if found is None:
        raise NotThere("No output of these launches was read in these steps.")
    detail = launch_detail(trace, found)
    if detail is None:
        raise NotThere(f"This trace contains no launch {found}.")
    return f"/steps/{detail.step}?log={detail.log}&launch={found}"


def magnitudes_page(
    trace: Trace, request: Request, most_rows: int = magnitudes.MOST_ROWS, most_columns: int = magnitudes.MOST_COLUMNS
) -> MagnitudesPage:
    log, window = heat_window(trace, request)
    statistic, kind = request.text("statistic") or magnitudes.SHOWN[0], request.text("of") or magnitudes.KINDS[0]
    for asked, known in ((statistic, magnitudes.SHOWN), (kind, magnitudes.KINDS)):
        if asked not in known:
            raise NotThere(f"“{asked[:40]}” is not shown by a map of magnitudes; use {', '.join(known)}.")
    site, argument = request.optional_id("site"), request.optional_id("argument")
    place = magnitudes.place_of(trace, log, site, argument) if site is not None and argument is not None else None
    first_row = request.optional_id("first_row") or 0
    if place is not None:
        kind, first_row = place[0], max(0, place[1] - most_rows // 2)
    shown = magnitude_map(
        trace,
        log,
        kind,
        statistic,
        first_row=first_row,
        first_step=window.first_step,
        last_step=window.last_step,
        most_rows=most_rows,
        most_columns=most_columns,
    )
    chosen = place[1] - first_row if place is not None else None
    return MagnitudesPage(shown, chosen, request.optional_id("step"), list_runs(trace))


def magnitudes_csv(trace: Trace, request: Request) -> File:
    """Return the cells of a map that were read, one in each row."""
    shown = magnitudes_page(trace, request).map
    rows: list[Sequence[Any]] = [
        ("tensor", "kernel", "graph", "first_step", "last_step", shown.statistic, "worst", "launch")
    ]
    for place, row in enumerate(shown.rows):
        for column, health in enumerate(shown.cells[place]):
            if health >= 0:
                steps = shown.steps[column], shown.last_steps[column]
                found = shown.numbers[place][column], shown.classes[health], shown.launches[place][column]
                rows.append((row.name, row.kernel, row.graph, *steps, *found))
    return csv_file(f"magnitudes_{shown.kind}.csv", rows)


def curve_page(trace: Trace, request: Request) -> CurvePage:
    asked = CurveAsked(
        request.id("site"),
        request.id("argument"),
        request.optional_id("item"),
        request.text("part"),
        request.text("moment") or "after",
    )
    if asked.moment not in MOMENTS:
        raise NotThere(f"“{asked.moment[:40]}” is not a moment of a launch; use before or after.")
    return curve_page_of(trace, asked, request.text("statistic"))


def curve_page_of(trace: Trace, asked: CurveAsked, statistic: str | None = None) -> CurvePage:
    curve = value_curve(trace, *asked)
    launch = launch_detail(trace, curve.launch[0]) if curve is not None and curve.launch else None
    if curve is None or launch is None:
        raise NotThere(f"No value of argument {asked.argument} of launch site {asked.site} was read {asked.moment} it.")
    if statistic not in curve.columns:
        statistic = next((name for name in CHOICES if name in curve.columns), "")
    return CurvePage(curve, statistic, launch.site, launch.graph, list(other_curves(launch)))


def other_curves(launch: LaunchDetail) -> Iterator[CurveLink]:
    """Yield a link to the curve of each value row of a launch."""
    names = {row.argument: row.buffer or row.name for row in launch.site.arguments}
    for values in launch.values:
        for shown_as, rows in (("before", values.before), ("after", values.after)):
            for row in rows:
                name = names.get(values.argument, str(values.argument))
                yield CurveLink(row.site, row.argument, row.item, row.part, row.moment, name, shown_as)


ROUTES = (
    Page("/graphs/{graph}/buffers", "values/buffers.html", "Graphs", BuffersPage, buffers_page, (GRAPH,)),
    Page("/graphs/{graph}/buffers/{buffer}", "values/buffer.html", "Graphs", BufferPage, buffer_page, (GRAPH, BUFFER)),
    Page("/kernels", "values/kernels.html", "Kernels", KernelsPage, kernels_page),
    Page("/sites", "values/sites.html", "Kernels", SitesPage, sites_page, (NAME,)),
    Page(
        "/kernels/{kernel}",
        "values/kernel.html",
        "Kernels",
        KernelPage,
        kernel_page,
        (KERNEL, *order_parameters(LAUNCH_ORDERS)),
    ),
    Page(
        "/values",
        "values/page.html",
        "Values",
        ValuesPage,
        values_page,
        (
            LOG,
            number("first_site", "The first launch site of the window."),
            number("last_site", "The last launch site of the window."),
            FIRST_STEP,
            LAST_STEP,
        ),
    ),
    Page(
        "/magnitudes",
        "values/magnitudes.html",
        "Values",
        MagnitudesPage,
        magnitudes_page,
        (
            LOG,
            one_of("of", magnitudes.KINDS, "The tensors that the map shows."),
            one_of("statistic", magnitudes.SHOWN, "The statistic that the map shows."),
            number("first_row", "The number of tensors to pass over."),
            FIRST_STEP,
            LAST_STEP,
            SITE,
            replace(ARGUMENT, required=False),
            STEP,
        ),
    ),
    Page(
        "/curves",
        "values/curve.html",
        "Values",
        CurvePage,
        curve_page,
        (
            replace(SITE, required=True),
            ARGUMENT,
            number("item", "The position within a list argument."),
            text("part", "The part of a tensor, such as real or imag."),
            one_of("moment", MOMENTS, "When the argument was read."),
            one_of("statistic", CHOICES, "The statistic that the curve shows."),
        ),
    ),
    Redirect("/values/launch", worst_launch),
    Download("/magnitudes.csv", magnitudes_csv),
)
