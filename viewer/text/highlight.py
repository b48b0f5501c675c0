"""Splits source text into lines of (class, text) pieces. They are data, not HTML, so templates must escape them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, TypeAlias

from stepscope.viewer.text.lexing import pieces

Language = Literal["python", "cpp", "json", "text"]
Piece: TypeAlias = tuple[str, str]
Line: TypeAlias = list[Piece]

_COMPILER = re.compile(r"async_compile\.(\w+)\(")

LIMIT_CHARS = 300_000
"""Maximum length of coloured text; the pieces of a longer one would make a page too large."""


def highlight(text: str, language: Language) -> list[Line]:
    """Return the lines without line ends; pieces of class "" are plain."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = text.removesuffix("\n")
    if language == "text" or len(text) > LIMIT_CHARS:
        return [[("", line)] for line in text.split("\n")]
    lines: list[Line] = [[]]
    for name, value in _pieces_of_wrapper(text) if language == "python" else pieces(text, language):
        first, *rest = value.split("\n")
        _append(lines[-1], name, first)
        for part in rest:
            lines.append([])
            _append(lines[-1], name, part)
    return lines


def _pieces_of_wrapper(text: str) -> Iterator[Piece]:
    """Yield the pieces of Python whose long strings may be kernels, which are coloured in their own language."""
    outside = ""
    for index, part in enumerate(text.split("'''")):
        compiler = _COMPILER.findall(outside)[-1:] if index % 2 else []
        if index:
            yield "s", "'''"
        if compiler:
            yield from pieces(part, "cpp" if compiler[0].startswith("cpp") else "python")
        elif index % 2:
            yield "s", part
        else:
            yield from pieces(part, "python")
            outside = part


def _append(line: Line, name: str, text: str) -> None:
    if not text:
        return
    if line and line[-1][0] == name:
        line[-1] = (name, line[-1][1] + text)
    else:
        line.append((name, text))


def language_of(event: str, name: str | None, encoding: str | None, payload: str) -> Language:
    """Return the language of a record's payload."""
    label = f"{event} {name or ''}".lower()
    start = payload.lstrip()[:1]
    if encoding == "json" or (start in ("{", "[") and "graph" not in label and "code" not in label):
        return "json"
    if label.endswith((".cpp", ".cc", ".h")) or "#include" in payload[:2000]:
        return "cpp"
    if any(word in label for word in ("graph", "output_code", "fx_", "triton", ".py", "runnable", "module")):
        return "python"
    return "text"
