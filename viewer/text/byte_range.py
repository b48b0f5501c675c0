"""A part of some bytes, as HTTP's `Range` names it."""

from __future__ import annotations

import re

_FORM = re.compile(r"(?:bytes=)?\s*(\d{0,18})-(\d{0,18})\s*")


def byte_range(text: str, size: int) -> slice | None:
    """`bytes=0-99` the first hundred of `size` bytes, `100-` all from there on, `-50` the last fifty.

    None for what is no range, or several of them: HTTP answers with everything then. Raises ValueError for one that
    holds no byte.
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
