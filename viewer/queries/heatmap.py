"""Launch sites x steps, coloured by the worst that their outputs held."""

from __future__ import annotations

from viewer.queries import sql
from viewer.queries.graphs import list_graphs
from viewer.queries.rows import HEALTH, HeatMap
from viewer.queries.values import HEALTH_INDEX, evenly
from viewer.store.open import Trace

MOST_STEPS = 512
_FEWEST_STEPS = 32
_MOST_CELLS = 1 << 20
_SITES = """
    SELECT s.site, s.kernel, s.graph FROM sites s
    JOIN (SELECT site, min(launch) AS first FROM launches WHERE log = ? GROUP BY site) r ON r.site = s.site
    ORDER BY r.first
"""
_BAD_STEPS = """
    SELECT DISTINCT step FROM value_rows
    WHERE log = ? AND moment = 'after' AND (nan > 0 OR positive_infinity > 0 OR negative_infinity > 0) ORDER BY step
"""
_CELLS = f"""
    SELECT v.site, v.step, min({HEALTH_INDEX}), arg_min(v.launch, {HEALTH_INDEX}) FROM value_rows v
    WHERE v.log = $1 AND v.moment = 'after' AND list_contains($2, v.step) GROUP BY v.site, v.step
"""


def heat_map(trace: Trace, log: int) -> HeatMap:
    """The map of one log; without rows when the log has no launch."""
    sites = sql.rows(trace, _SITES, [log])
    all_steps = [
        step for (step,) in sql.rows(trace, "SELECT DISTINCT step FROM launches WHERE log = ? ORDER BY step", [log])
    ]
    most = max(_FEWEST_STEPS, min(MOST_STEPS, _MOST_CELLS // max(len(sites), 1)))
    steps = all_steps if len(all_steps) <= most else _chosen(trace, log, all_steps, most)
    row_of, column_of = {site: i for i, (site, _, _) in enumerate(sites)}, {step: i for i, step in enumerate(steps)}
    cells, launches = ([[-1] * len(steps) for _ in sites] for _ in range(2))
    for site, step, health, launch in sql.rows(trace, _CELLS, [log, steps]):
        if site in row_of:
            cells[row_of[site]][column_of[step]] = health
            launches[row_of[site]][column_of[step]] = launch
    return HeatMap(
        log=log,
        graphs=[graph for graph in list_graphs(trace) if graph.log == log],
        sites=[site for site, _, _ in sites],
        kernels=[kernel for _, kernel, _ in sites],
        graph_of=[graph for _, _, graph in sites],
        steps=steps,
        classes=list(HEALTH),
        cells=cells,
        launches=launches,
        total_steps=len(all_steps),
    )


def _chosen(trace: Trace, log: int, steps: list[int], most: int) -> list[int]:
    """Steps with a NaN or an infinity, the first of them for sure, and evenly chosen ones."""
    bad = [step for (step,) in sql.rows(trace, _BAD_STEPS, [log])]
    alarming = evenly(bad, most // 2)
    return sorted({*alarming, *evenly(steps, most - len(alarming))})
