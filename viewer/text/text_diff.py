"""Compares two texts side by side, line by line."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

_CONTEXT = 3
_MOST_EXACT = 3000
"""Maximum number of lines for which the shortest difference is computed."""
Change = Literal["same", "changed", "added", "removed", "gap"]


@dataclass(frozen=True)
class DiffRow:
    change: Change
    left_line: int | None
    left: str
    right_line: int | None
    right: str


@dataclass(frozen=True)
class SideBySide:
    rows: list[DiffRow]
    added: int
    removed: int
    """Number of lines; a changed one counts as added and removed."""


def side_by_side(before: str, after: str) -> SideBySide:
    """Return the changed lines and those around them; all others become gaps."""
    left, right = before.splitlines(), after.splitlines()
    exact = max(len(left), len(right)) <= _MOST_EXACT
    matcher = SequenceMatcher(None, left, right, autojunk=not exact)
    rows: list[DiffRow] = []
    added = removed = 0
    end = 0
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        if group[0][1] > end:
            rows.append(_gap(group[0][1] - end))
        for tag, a, b, c, d in group:
            rows += _rows(left[a:b], right[c:d], a + 1, c + 1, tag == "equal")
            if tag != "equal":
                removed, added = removed + b - a, added + d - c
        end = group[-1][2]
    if rows and end < len(left):
        rows.append(_gap(len(left) - end))
    return SideBySide(rows, added, removed)


def _gap(lines: int) -> DiffRow:
    return DiffRow("gap", None, f"{lines:,} equal line{'s' if lines != 1 else ''}", None, "")


def _rows(left: list[str], right: list[str], first_left: int, first_right: int, same: bool) -> list[DiffRow]:
    rows = []
    for index in range(max(len(left), len(right))):
        has_left, has_right = index < len(left), index < len(right)
        change: Change = "same" if same else "changed"
        if not has_left or not has_right:
            change = "removed" if has_left else "added"
        rows.append(
            DiffRow(
                change,
                first_left + index if has_left else None,
                left[index] if has_left else "",
                first_right + index if has_right else None,
                right[index] if has_right else "",
            )
        )
    return rows
