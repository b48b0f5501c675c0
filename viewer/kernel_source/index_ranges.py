"""The range of an index that is a sum of loop variables."""

from __future__ import annotations

import re
from collections.abc import Mapping

_FACTOR = re.compile(r"\(?(-?[0-9]{1,18}|-?[A-Za-z]\w*)\)?$")
Affine = dict[str, int]
"""Coefficient per variable; that of "" is the constant."""


def affine(index: str) -> Affine | None:
    """``24+-8*x0+x1`` as {"": 24, "x0": -8, "x1": 1}; None for what is not of this form."""
    found: Affine = {}
    for term in index.split("+"):
        number, name = 1, ""
        for factor in term.split("*"):
            match = _FACTOR.match(factor)
            if match is None:
                return None
            text = match[1]
            if text.lstrip("-").isdigit():
                number *= int(text)
            elif name:
                return None
            else:
                number, name = (-number, text[1:]) if text.startswith("-") else (number, text)
        found[name] = found.get(name, 0) + number
    return found


def span(side: Affine, ends: Mapping[str, int]) -> tuple[int, int]:
    """The smallest and the largest value that an index takes; no loop of `ends` is empty."""
    reach = [number * (ends[name] - 1) for name, number in side.items() if name]
    start = side.get("", 0)
    return start + sum(n for n in reach if n < 0), start + sum(n for n in reach if n > 0)
