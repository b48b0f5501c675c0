"""Parses the ranges of bytes in HTTP's `Range`."""

from __future__ import annotations

import re

_FORM = re.compile(r"(?:bytes=)?\s*(\d{0,18})-(\d{0,18})\s*")


def byte_range(text: str, size: int) -> slice | None:
    """Return the slice of a range: `bytes=0-99` is the first hundred of `size` bytes, `100-` the rest, `-50` the last
    fifty.

    Returns None if the text is not one range; HTTP then sends everything. Raises ValueError if the range is empty.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        return None
    first, last = (int(part) if part else None for part in match.groups())
    if first is None:
        if last is None:
            return None
        start, stop = max(0, size - last), size
    elif last is not None and last < first:
        return None
    else:
        start, stop = first, size if last is None else min(size, last + 1)
    if start >= stop:
        raise ValueError(f"there is no byte {text} of {size}")
    return slice(start, stop)
