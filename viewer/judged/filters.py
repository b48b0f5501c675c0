"""Provides what the templates of the judge use: the signs of verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

VERDICT_SIGNS: Mapping[str, tuple[str, str]] = {
    "wrong": ("✖", "wrong"),
    "unjudged": ("–", "not judged"),
    "ok": ("●", "ok"),
}
HOW: Mapping[str, str] = {
    "equal": "bit-equal to eager code",
    "near": "so near to eager code that float64 cannot change the verdict",
    "float64": "compared with float64",
    "moved": "compared with float64, and with float64 of inputs moved by half a unit in the last place",
}


def digits(value: float | None) -> str:
    """Return a number with the digits that tell float32 values apart."""
    return "–" if value is None else f"{value:.9g}"


def limit(value: float | None) -> str:
    """Return an error as a multiple of what is allowed."""
    return "–" if value is None else f"{value:.2g}"


FILTERS: dict[str, Any] = {"digits": digits, "of_limit": limit}
GLOBALS: dict[str, Any] = {"verdict_signs": VERDICT_SIGNS, "verdict_how": HOW}
