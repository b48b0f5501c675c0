"""Finds the parts of Dynamo's text about a graph break. The time is linear in the length of the text."""

from __future__ import annotations

import re

_END = r"^[ \t]*Hint:|^[ \t]*Developer debug context:"
_EXPLANATION = re.compile(rf"^[ \t]*Explanation:\s*(.*?)(?={_END}|\Z)", re.M | re.S)
_HINT = re.compile(rf"^[ \t]*Hint:\s*(.*?)(?={_END}|\n[ \t]*\n|\Z)", re.M | re.S)
_CONTEXT = re.compile(r"^[ \t]*Developer debug context:\s*(.*?)(?=\n[ \t]*\n|\Z)", re.M | re.S)
_QUOTED_NAME = re.compile(r"`([A-Za-z_][\w.]*)(?:\(\))?`")
_URL = re.compile(r"For more details about this graph break, please visit:\s*(https?://[^\s\"'<>]+)")


def explanation_in(text: str) -> str | None:
    return _first(_EXPLANATION, text)


def explanation_of_names(text: str, code: str | None) -> str | None:
    """Return the first sentence of the explanation if it names something, as in `` `Logger.warn` ``, that the line of
    the program does not show; else the line explains the break."""
    sentence = " ".join((explanation_in(text) or "").split()).partition(". ")[0].rstrip(".")
    name = _QUOTED_NAME.search(sentence)
    return f"{sentence}." if name is not None and name[1].rpartition(".")[2] not in (code or "") else None


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
