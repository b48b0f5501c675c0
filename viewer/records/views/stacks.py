"""Stacks as PyTorch logs them: lists of frames whose file names stand in the log's string table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.records.rows import StackView
from stepscope.viewer.records.views.shape import integer, text_or_none

_LONGEST = 1_000


def frames(stack: Any, strings: Mapping[int, str]) -> list[SourceLine]:
    """Frames of a stack, outermost first; what is no frame is left out."""
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
    """A name, or a number in the string table; -1 stands for none."""
    if isinstance(file, str):
        return file
    return strings.get(file, f"<file {file}>") if type(file) is int and file >= 0 else "<unknown file>"


def stack_view(stack: Any, strings: Mapping[int, str], title: str = "") -> StackView | None:
    """None where there is no stack."""
    found = frames(stack, strings)
    return StackView(found, title) if found else None
