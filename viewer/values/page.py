"""From an address to the context of a page about values: kernels, buffers, the heat map, curves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from stepscope.viewer.web.addresses import NotThere, Request
from stepscope.viewer.web.contexts import (
    BufferPage,
    BuffersPage,
    CurveLink,
    CurvePage,
    KernelPage,
    KernelsPage,
    ValuesPage,
)

if TYPE_CHECKING:
    from stepscope.viewer.graphs.rows import GraphRow
    from stepscope.viewer.steps.rows import LaunchDetail
    from stepscope.viewer.store.trace import Trace
    from stepscope.viewer.values.queries.heatmap import Window
    from stepscope.viewer.values.rows import HeatMap

STATISTICS = (
    "largest", "min", "max", "mean", "std", "l2", "nan", "positive_infinity", "negative_infinity", "zero",
    "near_overflow", "subnormal",
)  # fmt: skip
"""In the order in which a curve offers them."""
CURVE_QUERY = ("site", "argument", "item", "part", "moment", "statistic")
MOMENTS = ("after", "before")
WINDOW = ("first_site", "last_site", "first_step", "last_step")


class CurveAsked(NamedTuple):
    """What the address of a curve names."""

    site: int
    argument: int
    item: int | None
    part: str | None
    moment: str


def kernels_page(trace: Trace, request: Request) -> KernelsPage:
    from stepscope.viewer.values.queries.kernels import kernel_rows

    return KernelsPage(kernel_rows(trace))


def kernel_page(trace: Trace, request: Request) -> KernelPage:
    return kernel_page_of(trace, request.name("kernel"))


def kernel_page_of(trace: Trace, kernel: str) -> KernelPage:
    from stepscope.viewer.values.queries.kernels import kernel_detail

    detail = kernel_detail(trace, kernel)
    if detail is None:
        raise NotThere(f"This trace holds no kernel “{kernel[:200]}”.")
    return KernelPage(detail)


def buffers_page(trace: Trace, request: Request) -> BuffersPage:
    from stepscope.viewer.values.queries.buffers import buffer_rows

    row = _graph(trace, request.id("graph"))
    return BuffersPage(row, buffer_rows(trace, row.graph))


def buffer_page(trace: Trace, request: Request) -> BufferPage:
    return buffer_page_of(trace, request.id("graph"), request.name("buffer"))


def buffer_page_of(trace: Trace, graph: int, buffer: str) -> BufferPage:
    from stepscope.viewer.values.queries.buffers import buffer_detail

    row = _graph(trace, graph)
    detail = buffer_detail(trace, graph, buffer)
    if detail is None:
        raise NotThere(f"Graph {graph} of this trace holds no buffer “{buffer[:200]}”.")
    return BufferPage(detail, row.log)


def _graph(trace: Trace, graph: int) -> GraphRow:
    from stepscope.viewer.graphs.queries.graphs import list_graphs

    found = next((row for row in list_graphs(trace) if row.graph == graph), None)
    if found is None:
        raise NotThere(f"This trace holds no graph {graph}.")
    return found


def values_page(trace: Trace, request: Request) -> ValuesPage:
    from stepscope.viewer.values.queries.heatmap import heat_map

    log, window = heat_window(trace, request)
    return values_page_of(trace, heat_map(trace, log, window))


def values_page_of(trace: Trace, heat: HeatMap) -> ValuesPage:
    from stepscope.viewer.overview.queries.runs import list_runs
    from stepscope.viewer.values.queries.heatmap import has_outputs, worst_sites

    return ValuesPage(heat, worst_sites(trace, heat.log), list_runs(trace), has_outputs(trace, heat.log))


def heat_window(trace: Trace, request: Request) -> tuple[int, Window]:
    """The log and the part of its map that an address names."""
    from stepscope.viewer.overview.queries.runs import list_runs
    from stepscope.viewer.values.queries.heatmap import Window

    log = request.optional_id("log") or 0
    if log not in {run.log for run in list_runs(trace)}:
        raise NotThere(f"This trace holds no log {log}.")
    window = Window(*(request.optional_id(name) for name in WINDOW))
    for first, last in (window[:2], window[2:]):
        if first is not None and last is not None and first > last:
            raise NotThere(f"A window from {first} to {last} holds nothing.")
    return log, window


def worst_launch(trace: Trace, request: Request) -> int:
    """The launch that a cell of the heat map stands for."""
    from stepscope.viewer.values.queries import heatmap

    found = heatmap.worst_launch(trace, *heat_window(trace, request))
    if found is None:
        raise NotThere("No output of these launches was read in these steps.")
    return found


def curve_page(trace: Trace, request: Request) -> CurvePage:
    asked = CurveAsked(
        request.id("site"),
        request.id("argument"),
        request.optional_id("item"),
        request.text("part"),
        request.text("moment") or "after",
    )
    if asked.moment not in MOMENTS:
        raise NotThere(f"“{asked.moment[:40]}” is no moment of a launch: it must be before or after.")
    return curve_page_of(trace, asked, request.text("statistic"))


def curve_page_of(trace: Trace, asked: CurveAsked, statistic: str | None = None) -> CurvePage:
    from stepscope.viewer.graphs.queries.launches import launch_detail
    from stepscope.viewer.values.queries.curves import value_curve

    curve = value_curve(trace, *asked)
    launch = launch_detail(trace, curve.launch[0]) if curve is not None and curve.launch else None
    if curve is None or launch is None:
        raise NotThere(f"No value of argument {asked.argument} of launch site {asked.site} was read {asked.moment} it.")
    if statistic not in curve.columns:
        statistic = next((name for name in STATISTICS if name in curve.columns), "")
    return CurvePage(curve, statistic, launch.site, launch.graph, list(other_curves(launch)))


def other_curves(launch: LaunchDetail) -> Iterator[CurveLink]:
    """A curve of each value that is known of a launch's arguments."""
    names = {row.argument: row.buffer or row.name for row in launch.site.arguments}
    for values in launch.values:
        for shown_as, rows in (("before", values.before), ("after", values.after)):
            for row in rows:
                name = names.get(values.argument, str(values.argument))
                yield CurveLink(row.site, row.argument, row.item, row.part, row.moment, name, shown_as)
