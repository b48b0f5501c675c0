"""Provides what the templates of the judge use: the signs of verdicts."""

from __future__ import annotations

from typing import Any

from stepscope.viewer.judged.rows import VERDICT_HOW, VERDICT_SIGNS


def digits(value: float | None) -> str:
    """Return a number with the digits that tell float32 values apart."""
    return "–" if value is None else f"{value:.9g}"


def limit(value: float | None) -> str:
    """Return an error as a multiple of what is allowed."""
    return "–" if value is None else f"{value:.2g}"


FILTERS: dict[str, Any] = {"digits": digits, "of_limit": limit}
GLOBALS: dict[str, Any] = {"verdict_signs": VERDICT_SIGNS, "verdict_how": VERDICT_HOW}
