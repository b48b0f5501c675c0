"""Queries how the sizes of inputs change over the steps, where graphs take them as numbers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_SCOPE = re.compile(r"\b[LG]\['([^']+)'\]")
_SIZES = """
    SELECT c.log, g.graph, v.symbol, any_value(s.source), c.step, max(try_cast(v.value AS BIGINT)) AS size
    FROM calls c JOIN call_symbols a ON a.call = c.call JOIN symbol_values v ON v.assignment = a.assignment
    JOIN graphs g ON g.graph = c.graph
    LEFT JOIN symbols s ON s.log = g.log AND s.symbol = v.symbol AND s.compile_id = g.compile_id
    WHERE try_cast(v.value AS BIGINT) IS NOT NULL AND list_contains(?, c.log) GROUP BY c.log, g.graph, v.symbol, c.step
    ORDER BY c.log, g.graph, v.symbol, c.step
"""


@dataclass
class SizeCourse:
    """The values of one symbol of a graph over the steps."""

    graph: int
    symbol: str
    source: str | None
    sizes: dict[int, int] = field(default_factory=dict)
    """The largest value in each step, by step."""

    @property
    def name(self) -> str:
        """Return the program's expression, such as ``x.size()[1]``, or the symbol if it is not known."""
        return _SCOPE.sub(r"\1", self.source) if self.source else self.symbol


def size_courses(trace: Trace, logs: Sequence[int]) -> dict[int, list[SizeCourse]]:
    """Return the course of each symbol whose value changes, by log: sizes first, then other numbers with a known
    source; offsets, by which the work does not grow, come last."""
    found: dict[tuple[int, int, str], SizeCourse] = {}
    if sql.has_rows(trace, "symbol_values"):
        for log, graph, symbol, source, step, size in sql.rows(trace, _SIZES, [list(logs)]):
            found.setdefault((log, graph, symbol), SizeCourse(graph, symbol, source)).sizes[step] = size
    by_log: defaultdict[int, list[SizeCourse]] = defaultdict(list)
    for (log, _, _), course in sorted(found.items(), key=lambda item: _order(item[1].source)):
        if len(set(course.sizes.values())) > 1:
            by_log[log].append(course)
    return by_log


def _order(source: str | None) -> int:
    if source is None:
        return 2
    return 0 if ".size()" in source else 3 if source.endswith(".storage_offset()") else 1
