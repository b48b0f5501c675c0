"""Filters and globals of the templates of values: the vocabulary of statistics, and addresses and data of plots."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from stepscope.tracer.schema.statistics import COUNTS, STATISTICS
from stepscope.viewer.judged.rows import VERDICT_HOW, VERDICT_SIGNS
from stepscope.viewer.text import formats
from stepscope.viewer.values.queries import magnitudes
from stepscope.viewer.values.rows import HEALTH_SIGNS
from stepscope.viewer.web.addresses import query_text

if TYPE_CHECKING:
    from stepscope.viewer.values.rows import BufferDetail, MagnitudeMap, Spread

CHOICES = sorted(STATISTICS, key=lambda name: name != "largest")
"""The statistics in the order in which a curve offers them."""
VOCABULARY = {
    "health": [{"name": name, "sign": sign, "label": label} for name, (sign, label) in HEALTH_SIGNS.items()],
    "statistics": {name: asdict(one) for name, one in STATISTICS.items()},
    "choices": CHOICES,
    "verdicts": [{"name": name, "sign": sign, "label": label} for name, (sign, label) in VERDICT_SIGNS.items()],
    "verdict_how": VERDICT_HOW,
}
"""The statistics, the classes of health and the verdicts of the judge for scripts, which every page carries as JSON."""


def spread_text(spread: Spread) -> str:
    """Return ``0.1 … 65,504``, or the only value if there is one."""
    low, high = (
        formats.format_value(end) if isinstance(end, int | float) else formats.shape_text(end)
        for end in (spread.low, spread.high)
    )
    return low if low == high else f"{low} … {high}"


def zeros_apart(rows: Iterable[Spread]) -> tuple[list[Spread], list[str]]:
    """Return the spreads that say something, and the names of the counts that were always 0."""
    shown, zero = [], []
    for row in rows:
        if row.name in COUNTS and row.low == row.high == 0:
            zero.append(row.name)
        else:
            shown.append(row)
    return shown, zero


def curve_query(row: Any) -> str:
    """Return the query of a curve's address, in the order in which static/js/values/lines.js writes it."""
    return query_text({name: getattr(row, name) for name in ("site", "argument", "item", "part", "moment")})


def magnitudes_query(found: MagnitudeMap) -> str:
    """Return the query of a map's address in a report, whose parameters `route_of` keeps in this order."""
    return query_text({"log": found.log, "of": found.kind, "statistic": found.statistic})


def plotted(detail: BufferDetail) -> BufferDetail:
    """Return the part of `detail` that the plot of a buffer draws."""
    return replace(detail, sites=[], memory=[])


FILTERS = {
    "spread": spread_text,
    "zeros_apart": zeros_apart,
    "curve_query": curve_query,
    "magnitudes_query": magnitudes_query,
    "plotted": plotted,
}
GLOBALS = {
    "health_signs": HEALTH_SIGNS,
    "statistics": STATISTICS,
    "vocabulary": VOCABULARY,
    "magnitude_statistics": magnitudes.SHOWN,
    "most_magnitude_rows": magnitudes.MOST_ROWS,
}
