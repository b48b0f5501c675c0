"""Provides what the templates of comparisons use: the curve of the differences, and both sides' numbers."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan, log10
from typing import Any, NamedTuple

from stepscope.viewer.compare.rows import Growth, InputState, Numbers
from stepscope.viewer.compare.shown import number_text, shown_names
from stepscope.viewer.compare.times_text import lone_text, refusion_text, sites_sentence, steps_sentence
from stepscope.viewer.text.clean import clean
from stepscope.viewer.values.rows import HEALTH_SIGNS, Health

WIDTH, HEIGHT = 900, 160
LEAST = -9.0
"""The power of ten at the bottom of the curve."""
INPUT_STATES: Mapping[InputState, str] = {
    "agree": "agree",
    "near": "differ by less than the tolerance",
    "differ": "differ",
    "unknown": "were not all read",
}
_SIGNED: tuple[Health, ...] = ("nan", "positive_infinity", "negative_infinity")
"""Classes of elements that are not finite, the worst first."""
LEAST_SHARE = 0.01
ROOM_FOR_SIGN = 4
"""Width in percent from which on a part of a strip has a sign."""


class StripPart(NamedTuple):
    """A class of elements in a strip; its place and widths are percentages."""

    css: str
    sign: str
    x: float
    width: float
    middle: float


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


def numbers(one: Numbers, other: Numbers) -> list[tuple[str, str, bool]]:
    """Return the label and the text of each number of a side, and whether the other side has another one."""
    pairs = [(name, getattr(one, name), getattr(other, name)) for name in shown_names(one, other)]
    return [(name, number_text(mine), mine != theirs) for name, mine, theirs in pairs]


def counts_text(one: Numbers) -> str:
    """Return the number of elements of each class, from the best to the worst: ``finite 8,000, NaN 2``."""
    found = _counts(one)
    return ", ".join(f"{HEALTH_SIGNS[name][1]} {count:,}" for name, count in found) or "not read"


def strip_parts(one: Numbers) -> list[StripPart]:
    """Return the parts of the strip of a side. Each class that has an element is at least a hundredth of it."""
    found = _counts(one)
    widths = [max(count / one.numel, LEAST_SHARE) for _, count in found]
    parts, x = [], 0.0
    for (name, _), width in zip(found, widths, strict=True):
        width = 100 * width / sum(widths)
        sign = HEALTH_SIGNS[name][0] if name in _SIGNED and width > ROOM_FOR_SIGN else ""
        parts.append(
            StripPart(f"v-{name.replace('_', '-')}", sign, round(x, 2), round(width, 2), round(x + width / 2, 2))
        )
        x += width
    return parts


def _counts(one: Numbers) -> list[tuple[Health, int]]:
    """Return the classes that have an element, from the best to the worst."""
    classes: tuple[Health, ...] = ("zero", *reversed(_SIGNED))
    counts = [(name, getattr(one, name) or 0) for name in classes]
    finite = 0 if one.nan is None else one.numel - sum(count for _, count in counts)
    return [(name, count) for name, count in [("finite", finite), *counts] if count > 0]


FILTERS: dict[str, Any] = {
    "difference_points": points, "both_numbers": numbers, "strip_parts": strip_parts,
    "counts_text": counts_text, "clean": clean, "steps_sentence": steps_sentence,
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
