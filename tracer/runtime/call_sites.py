"""Records from which lines the program calls its graphs."""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType

from stepscope.tracer.runtime.program_frames import calling_frame
from stepscope.tracer.schema.steps import CallSite

MOST_CALLS = 32
"""Number of first calls of each graph whose lines are looked up; this takes a few microseconds."""
MOST_BETWEEN = 16
"""Largest number of lines between two calls that are recorded."""


class CallSites:
    """Writes a record of each new line."""

    def __init__(self, write: Callable[[CallSite], None]) -> None:
        self._write = write
        self._calls: Counter[int] = Counter()
        self._told: set[tuple[int, str, int]] = set()
        self._last: tuple[CodeType, int] | None = None
        """Code and line of the last call that was looked up."""

    def look(self, graph: int, frame: FrameType) -> None:
        """Look at a call of `graph`, whose generated code runs in `frame`."""
        self._calls[graph] += 1
        if self._calls[graph] > MOST_CALLS:
            return
        found = calling_frame(frame)
        if found is None:
            return
        code, line = found.f_code, found.f_lineno
        before, self._last = self._last, (code, line)
        if (graph, code.co_filename, line) not in self._told:
            self._told.add((graph, code.co_filename, line))
            text = linecache.getline(code.co_filename, line).strip()
            after = before[1] if before is not None and before[0] is code else None
            between = self._between(code, after, line) if after is not None else []
            self._write(
                CallSite(graph, code.co_filename, line, code.co_name, text, after if between else None, between)
            )

    def _between(self, code: CodeType, after: int, line: int) -> list[str]:
        """Return the lines of a file between two others, unless they are many."""
        if line - after - 1 > MOST_BETWEEN:
            return []
        return [linecache.getline(code.co_filename, number).rstrip() for number in range(after + 1, line)]
