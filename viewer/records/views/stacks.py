"""Converts stacks as PyTorch logs them, with file names in the log's string table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.records.rows import StackView
from stepscope.viewer.records.views.shape import integer, text_or_none

_LONGEST = 1_000


def frames(stack: Any, strings: Mapping[int, str]) -> list[SourceLine]:
    """Return the frames of a stack, outermost first, without items that are not frames."""
    found = stack[:_LONGEST] if isinstance(stack, list) else []
    return [
        SourceLine(
            file_name(frame.get("filename"), strings),
            integer(frame.get("line")) or 0,
            text_or_none(frame.get("name")) or "",
            text_or_none(frame.get("loc")) or "",
        )
        for frame in found
        if isinstance(frame, dict)
    ]


def file_name(file: Any, strings: Mapping[int, str]) -> str:
    """Return the name of a file, given as a name or as a number in the string table; -1 means unknown."""
    if isinstance(file, str):
        return file
    return strings.get(file, f"<file {file}>") if type(file) is int and file >= 0 else "<unknown file>"


def stack_view(stack: Any, strings: Mapping[int, str], title: str = "") -> StackView | None:
    """Return a view of the stack, or None if it has no frames."""
    found = frames(stack, strings)
    return StackView(found, title) if found else None
