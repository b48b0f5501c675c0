"""Finds the parts of Dynamo's text about a graph break. The time is linear in the length of the text."""

from __future__ import annotations

import re

_END = r"^[ \t]*Hint:|^[ \t]*Developer debug context:"
_EXPLANATION = re.compile(rf"^[ \t]*Explanation:\s*(.*?)(?={_END}|\Z)", re.M | re.S)
_HINT = re.compile(rf"^[ \t]*Hint:\s*(.*?)(?={_END}|\n[ \t]*\n|\Z)", re.M | re.S)
_CONTEXT = re.compile(r"^[ \t]*Developer debug context:\s*(.*?)(?=\n[ \t]*\n|\Z)", re.M | re.S)
_URL = re.compile(r"For more details about this graph break, please visit:\s*(https?://[^\s\"'<>]+)")


def explanation_in(text: str) -> str | None:
    return _first(_EXPLANATION, text)


def hints_in(text: str) -> list[str]:
    return [hint.strip() for hint in _HINT.findall(text)]


def context_in(text: str) -> str | None:
    """Return the debug context for developers, or None if there is none."""
    return _first(_CONTEXT, text)


def url_in(text: str) -> str | None:
    """Return the address of PyTorch's page about the break, or None if there is none."""
    return _first(_URL, text)


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.search(text)
    return found[1].strip() if found else None
