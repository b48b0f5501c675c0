"""Cuts the source of one kernel or launch out of a generated wrapper."""

from __future__ import annotations

import re
from dataclasses import dataclass

CONTEXT_LINES = 2
_COMPILED = r"^{name} = (?:async_compile\.\w+|AsyncCompile\(\)\.\w+)\("
_CLOSING = re.compile(r"^(?:'''|\"\"\").*\)\s*$")
_GAP = "…"


@dataclass(frozen=True)
class CodePart:
    """Text cut from a wrapper; `first_line` is the number of its first line in the wrapper."""

    text: str
    first_line: int


def cut(code: str, kernel: str, kind: str, launch_line: int | None) -> CodePart | None:
    """Return the kernel's definition, if there is one, and the launch with two lines around it.

    Returns None if the wrapper has neither.
    """
    lines = code.split("\n")
    definition = _definition(lines, kernel) or (_function(lines, kernel) if kind == "subgraph" else None)
    launch = _around(lines, launch_line)
    if definition is None and launch is None:
        return None
    if definition is None or launch is None:
        first, last = definition or launch or (0, 0)
        return CodePart("\n".join(lines[first:last]), first + 1)
    parts = [lines[first:last] for first, last in (definition, launch)]
    return CodePart("\n".join([*parts[0], _GAP, *parts[1]]), definition[0] + 1)


def own_code(code: str, kernel: str, kind: str, launch_line: int | None) -> str:
    """Return the kernel's definition, if there is one, and the statement that launches it."""
    part, lines = cut(code, kernel, kind, None), code.split("\n")
    line = launch_line or 0
    statement = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return f"{part.text}\n{statement}" if part else statement


def _definition(lines: list[str], kernel: str) -> tuple[int, int] | None:
    """Return the first line of ``kernel = async_compile.cpp_pybinding([...], '''...''')`` and the line after it."""
    start = re.compile(_COMPILED.format(name=re.escape(kernel)))
    first = next((i for i, line in enumerate(lines) if start.match(line)), None)
    if first is None:
        return None
    for i in range(first + 1, len(lines)):
        if _CLOSING.match(lines[i]):
            return first, i + 1
    return first, first + 1


def _function(lines: list[str], name: str) -> tuple[int, int] | None:
    """Return the lines of the function of a subgraph."""
    start = re.compile(rf"^(\s*)def {re.escape(name)}\(")
    for first, line in enumerate(lines):
        match = start.match(line)
        if match:
            for i in range(first + 1, len(lines)):
                text = lines[i]
                if text.strip() and len(text) - len(text.lstrip()) <= len(match[1]):
                    return first, i
            return first, len(lines)
    return None


def _around(lines: list[str], line: int | None) -> tuple[int, int] | None:
    if line is None or not 1 <= line <= len(lines):
        return None
    return max(0, line - 1 - CONTEXT_LINES), min(len(lines), line + CONTEXT_LINES)
