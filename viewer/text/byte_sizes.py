"""Parses sizes as people write them: ``500M``, ``20 GB``, or bytes."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(\d{1,18})\s*([kMGT]?)B?")
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def bytes_of(text: str) -> int | None:
    """Return the number of bytes that `text` means, or None if it is not a size."""
    match = _SIZE.fullmatch(text.strip())
    return None if match is None else int(match[1]) * _UNITS[match[2]]
