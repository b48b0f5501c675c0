"""Reads the operators that Inductor puts into the name of a kernel, where nothing else tells what it computes."""

from __future__ import annotations

import re
from functools import lru_cache

from stepscope.viewer.redaction.proofs import operators_of

_FUSED = re.compile(r"(?:cpp|pallas|cutedsl|mps|triton(?:_[a-z]{2,5}){0,2})_fused_(?P<operators>\w+?)_\d{1,6}")
_NAMESPACES = ("aten", "prims", "inductor_prims", "higher_order")
_LONGEST = 400
_MOST_READINGS = 64


@lru_cache(maxsize=4096)
def operators_named(kernel: str) -> tuple[str, ...]:
    """Return the operators in a kernel's name, ``add`` and ``relu`` of ``triton_poi_fused_add_relu_3``.

    Inductor joins the names of the operators in the order of the alphabet by underscores, which are a part of some
    names, too. The reading with the fewest operators counts; without one, or with two, the result is empty."""
    found = _FUSED.fullmatch(kernel[: _LONGEST + 1])
    if found is None or len(kernel) > _LONGEST:
        return ()
    words, known = found["operators"].split("_"), operators_of(*_NAMESPACES)
    readings: list[list[tuple[str, ...]]] = [[()]]
    for end in range(1, len(words) + 1):
        here = [
            (*before, name)
            for start in range(end)
            if (name := "_".join(words[start:end])) in known
            for before in readings[start]
            if not before or before[-1] < name
        ]
        readings.append(sorted(here, key=len)[:_MOST_READINGS])
    whole = readings[-1]
    return whole[0] if whole and (len(whole) == 1 or len(whole[1]) > len(whole[0])) else ()
