"""From an address to the context of a page about values: kernels, buffers, the heat map, curves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from viewer.addresses import NotThere, Request
from viewer.contexts import (
    BufferPage,
    BuffersPage,
    CurveLink,
    CurvePage,
    KernelPage,
    KernelsPage,
    ValuesPage,
    WorstSite,
)
from viewer.queries.rows import HEALTH, HeatMap

if TYPE_CHECKING:
    from viewer.queries.rows import GraphRow, LaunchDetail
    from viewer.store.open import Trace

STATISTICS = (
    "largest", "min", "max", "mean", "std", "l2", "nan", "positive_infinity", "negative_infinity", "zero",
    "near_overflow", "subnormal",
)  # fmt: skip
"""In the order in which a curve offers them."""
CURVE_QUERY = ("site", "argument", "item", "part", "moment", "statistic")
MOMENTS = ("after", "before")
MOST_WORST = 100
_UNREMARKABLE = {"zero", "finite", "not_recorded"}


class CurveAsked(NamedTuple):
    """What the address of a curve names."""

    site: int
    argument: int
    item: int | None
    part: str | None
    moment: str


def kernels_page(trace: Trace, request: Request) -> KernelsPage:
    from viewer.queries.kernels import kernel_rows

    return KernelsPage(kernel_rows(trace))


def kernel_page(trace: Trace, request: Request) -> KernelPage:
    return kernel_page_of(trace, request.name("kernel"))


def kernel_page_of(trace: Trace, kernel: str) -> KernelPage:
    from viewer.queries.kernels import kernel_detail

    detail = kernel_detail(trace, kernel)
    if detail is None:
        raise NotThere(f"This trace holds no kernel “{kernel[:200]}”.")
    return KernelPage(detail)


def buffers_page(trace: Trace, request: Request) -> BuffersPage:
    from viewer.queries.buffers import buffer_rows

    row = _graph(trace, request.id("graph"))
    return BuffersPage(row, buffer_rows(trace, row.graph))


def buffer_page(trace: Trace, request: Request) -> BufferPage:
    return buffer_page_of(trace, request.id("graph"), request.name("buffer"))


def buffer_page_of(trace: Trace, graph: int, buffer: str) -> BufferPage:
    from viewer.queries.buffers import buffer_detail

    row = _graph(trace, graph)
    detail = buffer_detail(trace, graph, buffer)
    if detail is None:
        raise NotThere(f"Graph {graph} of this trace holds no buffer “{buffer[:200]}”.")
    return BufferPage(detail, row.log)


def _graph(trace: Trace, graph: int) -> GraphRow:
    from viewer.queries.graphs import list_graphs

    found = next((row for row in list_graphs(trace) if row.graph == graph), None)
    if found is None:
        raise NotThere(f"This trace holds no graph {graph}.")
    return found


def values_page(trace: Trace, request: Request) -> ValuesPage:
    from viewer.queries.heatmap import heat_map
    from viewer.queries.runs import list_runs

    runs, log = list_runs(trace), request.optional_id("log") or 0
    if log not in {run.log for run in runs}:
        raise NotThere(f"This trace holds no log {log}.")
    heat = heat_map(trace, log)
    return ValuesPage(heat, worst_sites(heat), runs, any(cell >= 0 for cells in heat.cells for cell in cells))


def worst_sites(heat: HeatMap) -> list[WorstSite]:
    """Rows of the map that hold something to look at, worst first, then in order of execution."""
    order = {name: place for place, name in enumerate(HEALTH)}
    found = []
    for row, cells in enumerate(heat.cells):
        names = [heat.classes[cell] if cell >= 0 else "not_recorded" for cell in cells]
        worst = min(names, key=lambda name: order[name], default="not_recorded")
        if worst in _UNREMARKABLE:
            continue
        first = names.index(worst)
        found.append(
            WorstSite(
                site=heat.sites[row],
                kernel=heat.kernels[row],
                graph=heat.graph_of[row],
                health=worst,
                cells=names.count(worst),
                first_step=heat.steps[first],
                first_launch=heat.launches[row][first],
            )
        )
    return sorted(found, key=lambda row: order[row.health])[:MOST_WORST]


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
    from viewer.queries.launches import launch_detail
    from viewer.queries.value_curves import value_curve

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
