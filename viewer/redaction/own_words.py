"""Finds the sentences and words of stepscope's own source, which reveal nothing about a program."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

FEWEST_LETTERS = 8
"""Minimum number of letters in the fixed parts of a sentence; with fewer it would fit any text."""


@cache
def _trees() -> list[ast.Module]:
    top = Path(__file__).resolve().parents[2]
    paths = [path for part in ("viewer", "tracer") for path in sorted((top / part).rglob("*.py"))]
    return [ast.parse(path.read_bytes()) for path in paths]


@cache
def texts() -> frozenset[str]:
    """Return all string constants of the source, also with their lines joined, and the names of its fields."""
    nodes = [node for tree in _trees() for node in ast.walk(tree)]
    found = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    names = {node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    return frozenset(found | names | {" ".join(text.split()) for text in found})


@cache
def sentences() -> list[tuple[str | None, ...]]:
    """Return the sentences of the source with holes (None), those with the longest fixed parts first."""
    found = {parts: letters(parts) for parts in _with_holes()}
    return sorted((parts for parts in found if found[parts]), key=lambda parts: (-found[parts], repr(parts)))


def letters(parts: tuple[str | None, ...]) -> int:
    return sum(char.isalpha() for part in parts for char in part or "")


def fill(parts: tuple[str | None, ...], text: str) -> list[str] | None:
    """Return the shortest texts that fill the holes of a sentence to give `text`, or None if that is impossible."""
    holes, at, is_open = [], 0, False
    for part in parts:
        if part is None:
            is_open = True
            continue
        found = text.find(part, at) if is_open else (at if text.startswith(part, at) else -1)
        if found < 0:
            return None
        if is_open:
            holes.append(text[at:found])
        at, is_open = found + len(part), False
    if is_open:
        holes.append(text[at:])
    return holes if is_open or at == len(text) else None


def _with_holes() -> Iterator[tuple[str | None, ...]]:
    for tree in _trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = [str(part.value) if isinstance(part, ast.Constant) else None for part in node.values]
                yield tuple(
                    part for i, part in enumerate(parts) if part is not None or i == 0 or parts[i - 1] is not None
                )
