"""Renders a comparison as one HTML file without scripts that asks the network for nothing."""

from __future__ import annotations

from math import isnan, log10

from markupsafe import Markup

from stepscope.viewer.compare.rows import Comparison, Growth, Numbers
from stepscope.viewer.text.clean import clean
from stepscope.viewer.web import assets, render

WIDTH, HEIGHT = 900, 160
LEAST = -9.0
"""The power of ten at the bottom of the curve."""
_SHEETS = "core/colours", "core/page", "core/tables", "report/report"
_NUMBERS = ("min", "max", "mean", "std", "nan", "positive_infinity", "negative_infinity", "zero")


def render_html(found: Comparison) -> str:
    """Return the text of the file."""
    css = assets.compact_sheet("\n".join(assets.content(f"css/{sheet}.css").decode() for sheet in _SHEETS))
    template = render.environment(root="#").get_template("compare/report.html")
    return template.render(
        found=found, css=Markup(css), points=points(found.growth), numbers=numbers, clean=clean, width=WIDTH,
        height=HEIGHT, ticks=[(power, _height(power)) for power in range(int(LEAST), 1, 3)],
    )  # fmt: skip


def points(growth: list[Growth]) -> list[tuple[float, float, Growth]]:
    """Return the place of each buffer in the curve: in the order of launches, by its largest relative difference."""
    last = max(len(growth) - 1, 1)
    return [
        (round(n / last * (WIDTH - 60) + 50, 1), _height(log10(row.largest_relative)), row)
        for n, row in enumerate(growth)
        if row.largest_relative and not isnan(row.largest_relative)
    ]


def _height(power: float) -> float:
    return round(10 + (HEIGHT - 20) * min(max(-power / -LEAST, 0), 1), 1)


def numbers(one: Numbers) -> list[str]:
    """Return the statistics as texts, in the order of the table's head."""
    values = [getattr(one, name) for name in _NUMBERS]
    return ["–" if value is None else f"{value:.7g}" if isinstance(value, float) else f"{value:,}" for value in values]
