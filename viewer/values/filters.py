"""What the templates of values use: classes of health, statistics, and addresses and data of plots."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stepscope.viewer.text import formats
from stepscope.viewer.web.addresses import query_text

if TYPE_CHECKING:
    from stepscope.viewer.values.rows import BufferDetail, Spread

HEALTH_SIGNS = {
    "nan": ("✖", "NaN"),
    "positive_infinity": ("▲", "+inf"),
    "negative_infinity": ("▼", "−inf"),
    "extreme": ("◆", "extreme"),
    "zero": ("0", "all zero"),
    "finite": ("", "finite"),
    "not_recorded": ("", "not recorded"),
}
"""Class -> its sign and its name; the script health.js has the same table."""
STATISTIC_NAMES = {
    "nan": "NaN",
    "positive_infinity": "+inf",
    "negative_infinity": "−inf",
    "l2": "L2",
    "near_overflow": "near overflow",
}
COUNTED = {"nan", "positive_infinity", "negative_infinity", "zero", "near_overflow", "subnormal"}


def spread_text(spread: Spread) -> str:
    """``0.1 … 65,504``, or the one value that it always had."""
    low, high = (
        formats.format_value(end) if isinstance(end, int | float) else formats.shape_text(end)
        for end in (spread.low, spread.high)
    )
    return low if low == high else f"{low} … {high}"


def curve_query(row: Any) -> str:
    """What stands in the address of a curve, in the order in which static/js/values/lines.js writes it."""
    return query_text({name: getattr(row, name) for name in ("site", "argument", "item", "part", "moment")})


def plotted(detail: BufferDetail) -> BufferDetail:
    """What the plot of a buffer is drawn from."""
    return replace(detail, sites=[], memory=[])


FILTERS = {"spread": spread_text, "curve_query": curve_query, "plotted": plotted}
GLOBALS = {"health_signs": HEALTH_SIGNS, "statistic_names": STATISTIC_NAMES, "counted": COUNTED}
