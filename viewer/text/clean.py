"""Text of a log made safe for a terminal."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]+")


def clean(text: str) -> str:
    """One line without control characters: what a log holds must not steer a terminal."""
    return _CONTROL.sub(" ", text)
