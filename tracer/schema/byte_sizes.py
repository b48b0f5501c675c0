"""Parses sizes as people write them: ``500k``, ``20 GB``, ``1.5MiB``, or bytes."""

from __future__ import annotations

import re

_UNITS: dict[str, int] = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
_UNITS |= {f"{letter}i": 1024**power for power, letter in enumerate("kmgt", 1)}
_SIZE = re.compile(r"([0-9]{1,19})(?:\.([0-9]{1,9}))? ?(?:([kmgt]i?)b?|b)?", re.IGNORECASE)


def bytes_of(text: str) -> int | None:
    """Return the number of bytes that `text` means, or None if it is not a size."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return None
    unit = _UNITS[(found[3] or "").lower()]
    if found[2] is None:
        return int(found[1]) * unit
    return None if unit == 1 else int(found[1]) * unit + int(found[2]) * unit // int(10 ** len(found[2]))
