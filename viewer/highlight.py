"""Source text -> lines of (class, text) pieces. Data, never HTML: whoever shows them escapes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Literal, TypeAlias

Language = Literal["python", "cpp", "json", "text"]
Piece: TypeAlias = tuple[str, str]
Line: TypeAlias = list[Piece]

_COMPILER = re.compile(r"async_compile\.(\w+)\(")

LIMIT_CHARS = 300_000
"""Longer texts are shown plain: colouring them takes seconds."""


def highlight(text: str, language: Language) -> list[Line]:
    """Lines without their line ends; pieces of class "" are plain."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = text.removesuffix("\n")
    if language == "text" or len(text) > LIMIT_CHARS:
        return [[("", line)] for line in text.split("\n")]
    lines: list[Line] = [[]]
    for name, value in _tokens_of_wrapper(text) if language == "python" else _tokens(text, language):
        first, *rest = value.split("\n")
        _append(lines[-1], name, first)
        for part in rest:
            lines.append([])
            _append(lines[-1], name, part)
    return lines


def _tokens_of_wrapper(text: str) -> Iterator[Piece]:
    """Python whose long strings may hold kernels; those are coloured as the code they are."""
    outside = ""
    for index, part in enumerate(text.split("'''")):
        compiler = _COMPILER.findall(outside)[-1:] if index % 2 else []
        if index:
            yield "s", "'''"
        if compiler:
            yield from _tokens(part, "cpp" if compiler[0].startswith("cpp") else "python")
        elif index % 2:
            yield "s", part
        else:
            yield from _tokens(part, "python")
            outside = part


def _tokens(text: str, language: Language) -> list[Piece]:
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]

    lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    return [(_class_of(token), value) for token, value in lexer.get_tokens(text)]


_CLASSES = (
    ("Token.Comment", "c"),
    ("Token.Keyword", "k"),
    ("Token.Operator.Word", "k"),
    ("Token.Literal.String", "s"),
    ("Token.Literal.Number", "n"),
    ("Token.Name.Function", "f"),
    ("Token.Name.Class", "f"),
    ("Token.Name.Tag", "f"),
    ("Token.Name.Decorator", "d"),
    ("Token.Name.Builtin", "b"),
)


@cache
def _class_of(token: object) -> str:
    return next((name for prefix, name in _CLASSES if str(token).startswith(prefix)), "")


def _append(line: Line, name: str, text: str) -> None:
    if not text:
        return
    if line and line[-1][0] == name:
        line[-1] = (name, line[-1][1] + text)
    else:
        line.append((name, text))


def language_of(event: str, name: str | None, encoding: str | None, payload: str) -> Language:
    """What the payload of a record is written in."""
    label = f"{event} {name or ''}".lower()
    start = payload.lstrip()[:1]
    if encoding == "json" or (start in ("{", "[") and "graph" not in label and "code" not in label):
        return "json"
    if label.endswith((".cpp", ".cc", ".h")) or "#include" in payload[:2000]:
        return "cpp"
    if any(word in label for word in ("graph", "output_code", "fx_", "triton", ".py", "runnable", "module")):
        return "python"
    return "text"
