"""Keeps each line of generated code once in a report: panels of launches have the numbers of lines of a wrapper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from stepscope.viewer.text.highlight import Line


def with_shared_code(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of a report, in which a panel has only the numbers of lines that are equal in the wrapper of its
    graph, and a line of a wrapper is one list of classes and texts in turn."""
    wrappers: Mapping[int, list[Line]] = data.get("wrappers", {})
    shared = {
        "panels": [
            [page and _shared(page, wrappers.get(page.launch.graph.graph, ())) for page in of_call]
            for of_call in data.get("panels", ())
        ],
        "wrappers": {
            graph: [[text for piece in line for text in piece] for line in lines] for graph, lines in wrappers.items()
        },
    }
    return {**data, **{name: found for name, found in shared.items() if name in data}}


def _shared(page: Any, wrapper: Sequence[Line]) -> Any:
    def is_there(number: int | None, line: Line) -> bool:
        return number is not None and number <= len(wrapper) and wrapper[number - 1] == line

    lines = [(number, None if is_there(number, line) else line) for number, line in page.code_lines]
    return replace(page, code_lines=lines)
