"""Provides what the templates of comparisons use: the curve of the differences, and both sides' numbers."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan, log10
from typing import Any

from stepscope.viewer.compare.rows import Growth, InputState, Numbers
from stepscope.viewer.compare.times_text import lone_text, refusion_text, sites_sentence, steps_sentence
from stepscope.viewer.text.clean import clean

WIDTH, HEIGHT = 900, 160
LEAST = -9.0
"""The power of ten at the bottom of the curve."""
INPUT_STATES: Mapping[InputState, str] = {
    "agree": "agree",
    "near": "differ by less than the tolerance",
    "differ": "differ",
    "unknown": "were not all read",
}
_NUMBERS = ("min", "max", "mean", "std", "nan", "positive_infinity", "negative_infinity", "zero")


def points(growth: list[Growth]) -> list[tuple[float, float, Growth]]:
    """Return the place of each buffer in the curve: in the order of launches, by its largest relative difference."""
    last = max(len(growth) - 1, 1)
    return [
        (round(n / last * (WIDTH - 60) + 50, 1), height(log10(row.largest_relative)), row)
        for n, row in enumerate(growth)
        if row.largest_relative and not isnan(row.largest_relative)
    ]


def height(power: float) -> float:
    """Return the place of a power of ten in the curve, from the top."""
    return round(10 + (HEIGHT - 20) * min(max(-power / -LEAST, 0), 1), 1)


def numbers(one: Numbers) -> list[str]:
    """Return the statistics as texts, in the order of the table's head."""
    values = [getattr(one, name) for name in _NUMBERS]
    return ["–" if value is None else f"{value:.7g}" if isinstance(value, float) else f"{value:,}" for value in values]


FILTERS: dict[str, Any] = {
    "difference_points": points, "both_numbers": numbers, "clean": clean, "steps_sentence": steps_sentence,
    "sites_sentence": sites_sentence, "refusion_text": refusion_text, "lone_text": lone_text,
}  # fmt: skip
GLOBALS: dict[str, Any] = {
    "difference_curve": {
        "width": WIDTH,
        "height": HEIGHT,
        "ticks": [(power, height(power)) for power in range(int(LEAST), 1, 3)],
    },
    "input_states": INPUT_STATES,
}
