"""Whether two index expressions of a loop nest can meet: by their terms, and by how far the loops run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import gcd, prod
from typing import Literal

from stepscope.viewer.queries.kernel_access import is_number, same_place

Meeting = Literal["same", "apart", "meet", "unknown"]
_FACTOR = re.compile(r"\(?(-?[0-9]{1,18}|-?[A-Za-z]\w*)\)?$")
_LOADED = re.compile(r"\btmp\d+\b")
_MOST_ELEMENTS = 1 << 20
Affine = dict[str, int]
"""Coefficient per variable; that of "" is the constant."""


def meeting(read: str, write: str, bounds: Mapping[str, str]) -> Meeting:
    """Of two normal index expressions: the same element in each iteration, never a common one, some, or not known."""
    if same_place(read, write, dict(bounds)):
        return "same"
    if _LOADED.search(read) or _LOADED.search(write):
        return "unknown"
    ours, theirs = affine(read), affine(write)
    ends = {name: int(end) for name, end in bounds.items() if is_number(end)}
    names = {name for side in (ours, theirs) if side is not None for name in side if name}
    if ours is None or theirs is None or not names <= ends.keys():
        return "unknown" if _loop_terms(read, bounds) == _loop_terms(write, bounds) else "meet"
    return _numeric(ours, theirs, {name: ends[name] for name in names})


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


def _loop_terms(index: str, bounds: Mapping[str, str]) -> list[str]:
    """The terms that vary within the nest: equal ones are the same pattern, shifted."""
    return sorted(
        term for term in index.split("+") if any(re.search(rf"\b{re.escape(name)}\b", term) for name in bounds)
    )


def _numeric(ours: Affine, theirs: Affine, ends: Mapping[str, int]) -> Meeting:
    if any(end == 0 for end in ends.values()):
        return "apart"
    (low_a, high_a), (low_b, high_b) = span(ours, ends), span(theirs, ends)
    if high_a < low_b or high_b < low_a:
        return "apart"
    common = gcd(*(number for side in (ours, theirs) for name, number in side.items() if name), 0)
    if common and (ours.get("", 0) - theirs.get("", 0)) % common:
        return "apart"
    if prod(ends.values()) > _MOST_ELEMENTS or max(map(abs, (low_a, low_b, high_a, high_b))) >= 2**62:
        return "meet"
    return _enumerated(ours, theirs, ends)


def span(side: Affine, ends: Mapping[str, int]) -> tuple[int, int]:
    """The smallest and the largest value that an index takes; no loop of `ends` is empty."""
    reach = [number * (ends[name] - 1) for name, number in side.items() if name]
    start = side.get("", 0)
    return start + sum(n for n in reach if n < 0), start + sum(n for n in reach if n > 0)


def _enumerated(ours: Affine, theirs: Affine, ends: Mapping[str, int]) -> Meeting:
    import numpy as np  # not needed by most traces

    grids = np.ix_(*(np.arange(end) for end in ends.values()))
    whole = np.zeros(tuple(ends.values()), dtype=np.int64)
    a, b = (
        whole + side.get("", 0) + sum(side.get(name, 0) * grid for name, grid in zip(ends, grids, strict=True))
        for side in (ours, theirs)
    )
    if np.array_equal(a, b):
        return "same"
    return "meet" if np.intersect1d(a, b).size else "apart"
