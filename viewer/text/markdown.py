"""Puts text of a log into markdown so that it neither breaks out of its place nor mentions anybody."""

from __future__ import annotations

import re

from stepscope.viewer.text.clean import clean

_SPECIAL = re.compile(r"[\\`*_\[\]<>|~$&]")
_GAP = "\u200b"
"""A character without a width, which keeps a host from reading a name or a number as a reference."""
_REFERENCE = re.compile(r"@(?=\w)|#(?=\d)|(?<=GH)-(?=\d)|(?<=\w)(?=://)|(?<=www)\.")
_LONG_HEX = re.compile(r"\b(?=[0-9a-f]{7,40}\b)([0-9a-f]{4})", re.IGNORECASE)
_CONTROL_IN_BLOCK = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def prose(text: str) -> str:
    """Return one line of running text in which nothing has a meaning for markdown or its host."""
    plain = _REFERENCE.sub(lambda found: found[0] + _GAP, clean(text))
    plain = _LONG_HEX.sub(lambda found: found[1] + _GAP, plain)
    return _SPECIAL.sub(lambda found: f"\\{found[0]}", plain).strip()


def code(text: str) -> str:
    """Return one line of text as code, in which hosts look for no mentions. A table may hold it."""
    plain = clean(text).strip()
    if not plain:
        return "–"
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", plain)), default=0))
    space = " " if plain[0] == "`" or plain[-1] == "`" else ""
    return f"{fence}{space}{plain}{space}{fence}".replace("|", "\\|")


def block(text: str, language: str = "") -> str:
    """Return lines of text as a block of code that no line of it can end."""
    plain = _CONTROL_IN_BLOCK.sub(" ", text.replace("\t", "    "))
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", plain)), default=0))
    return f"{fence}{language}\n{plain}\n{fence}"


def folded(title: str, body: str) -> str:
    """Return a section that opens on a click; `title` is a text of stepscope."""
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"
