"""Groups sentences that say the same about different names and numbers."""

from __future__ import annotations

import re

_DIFFERING = re.compile(r"""'[^']*'|"[^"]*"|\b\w*\d[\w.]*|\b\w+(?:[._]\w+)+""")
"""Quoted texts, numbers, and names of kernels, buffers and graphs."""


def pattern_of(text: str) -> str:
    """Return the text with a sign in place of each name and number; texts with the same pattern are alike."""
    return _DIFFERING.sub("#", text)


def often(count: int, texts: int) -> str:
    """Return how often something happened, such as ``12 times, in 3 variants with other names or numbers``, if
    there were as many different texts; empty for once."""
    times = f"{count:,} times" if count > 1 else ""
    if texts < 2:
        return times
    return f"{times}, {'each' if texts == count else f'in {texts:,} variants'} with other names or numbers"
