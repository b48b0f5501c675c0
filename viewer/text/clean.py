"""Makes text of a log safe for a terminal and for files."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]+")


def clean(text: str) -> str:
    """Replace control characters, including line breaks, because a log must not control a terminal."""
    return _CONTROL.sub(" ", text)


def well_formed(text: str) -> str:
    """Replace each lone surrogate, which no file in UTF-8 can hold, by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
