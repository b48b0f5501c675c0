"""Records from which lines the program calls its graphs."""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Callable
from types import FrameType

from stepscope.tracer.runtime.program_frames import calling_frame
from stepscope.tracer.schema.steps import CallSite

MOST_CALLS = 32
"""Number of first calls of each graph whose lines are looked up; this takes a few microseconds."""


class CallSites:
    """Writes a record of each new line."""

    def __init__(self, write: Callable[[CallSite], None]) -> None:
        self._write = write
        self._calls: Counter[int] = Counter()
        self._told: set[tuple[int, str, int]] = set()

    def look(self, graph: int, frame: FrameType) -> None:
        """Look at a call of `graph`, whose generated code runs in `frame`."""
        self._calls[graph] += 1
        if self._calls[graph] > MOST_CALLS:
            return
        found = calling_frame(frame)
        if found is None:
            return
        code, line = found.f_code, found.f_lineno
        if (graph, code.co_filename, line) not in self._told:
            self._told.add((graph, code.co_filename, line))
            text = linecache.getline(code.co_filename, line).strip()
            self._write(CallSite(graph, code.co_filename, line, code.co_name, text))
