"""Queries how the sizes of inputs change over the steps, where graphs take them as numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_SCOPE = re.compile(r"\b[LG]\['([^']+)'\]")
_SIZES = """
    SELECT g.graph, v.symbol, any_value(s.source), c.step, max(try_cast(v.value AS BIGINT)) AS size
    FROM calls c JOIN call_symbols a ON a.call = c.call JOIN symbol_values v ON v.assignment = a.assignment
    JOIN graphs g ON g.graph = c.graph
    LEFT JOIN symbols s ON s.log = g.log AND s.symbol = v.symbol AND s.compile_id = g.compile_id
    WHERE c.log = ? AND try_cast(v.value AS BIGINT) IS NOT NULL GROUP BY g.graph, v.symbol, c.step
    ORDER BY g.graph, v.symbol, c.step
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


def size_courses(trace: Trace, log: int) -> list[SizeCourse]:
    """Return the course of each symbol whose value changes, those with a known source first."""
    found: dict[tuple[int, str], SizeCourse] = {}
    for graph, symbol, source, step, size in sql.rows(trace, _SIZES, [log]):
        found.setdefault((graph, symbol), SizeCourse(graph, symbol, source)).sizes[step] = size
    changing = [course for course in found.values() if len(set(course.sizes.values())) > 1]
    return sorted(changing, key=lambda course: course.source is None)
