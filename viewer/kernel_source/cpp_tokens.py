"""Cuts the text of a generated C++ kernel into tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["name", "number", "text", "pragma", "sign"]
_TOKEN = re.compile(
    r"""(?P<skip>//[^\n]*|/\*(?s:.*?)\*/)
    |(?P<pragma>(?m:^)[ \t]*\#[^\n]*)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)+')
    |(?P<number>(?:0[xX][\da-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[a-zA-Z]*)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<sign><<=|>>=|->|::|\+\+|--|<<|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\S)""",
    re.VERBOSE,
)


class NotUnderstoodError(Exception):
    """The text is not of the subset of C++ that Inductor writes."""


@dataclass(frozen=True, slots=True)
class Token:
    kind: Kind
    text: str


def tokens(code: str) -> list[Token]:
    """Return the tokens in order. ``>>`` is two tokens, since it mostly closes two lists of template arguments."""
    found = []
    for match in _TOKEN.finditer(code):
        kind = match.lastgroup
        if kind is not None and kind != "skip":
            found.append(Token(kind, match[0]))  # type: ignore[arg-type]
    return found
