"""Queries for what the judge found: buffers with wrong values, inputs that changed, and what was not judged."""

from __future__ import annotations

from collections import Counter
from typing import Any

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.judged.rows import ClobberedInputRow, JudgedBufferRow, JudgedCount
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

# The launches of a call have consecutive positions in the order of their ids.
_AT = """
    JOIN calls c ON c.log = j.log AND c.local_call = j.call
    JOIN sites s ON s.graph = c.graph AND s.local_site = j.site
    LEFT JOIN (
        SELECT launch, call, row_number() OVER (PARTITION BY call ORDER BY launch) - 1 AS position FROM launches
        WHERE call IN (SELECT c.call FROM {table} j JOIN calls c ON c.log = j.log AND c.local_call = j.call)
    ) l ON l.call = c.call AND l.position = j.launch
"""
_BUFFERS = f"""
    SELECT j.* EXCLUDE (graph, call, launch, site), c.graph, c.call, s.site, s.kernel, s.kind, s.line, l.launch,
           j.launch AS position
    FROM judged_buffers j {_AT.format(table="judged_buffers")} ORDER BY j.log, j.step, j.call, j.launch
"""
_INPUTS = f"""
    SELECT j.* EXCLUDE (graph, call, launch, site), c.graph, c.call, s.site, s.kernel, s.kind, l.launch,
           j.launch AS position
    FROM clobbered_inputs j {_AT.format(table="clobbered_inputs")} ORDER BY j.log, j.step, j.call, j.launch
"""
_AT_POSITION = """
    SELECT launch, kernel FROM (
        SELECT l.launch, s.kernel, row_number() OVER (ORDER BY l.launch) - 1 AS position
        FROM launches l JOIN sites s USING (site) WHERE l.call = ?
    ) WHERE position = ?
"""
_CALLS = "SELECT step, launches, judged, not_judged, duration_ns FROM judged_calls"


def judged_buffers(trace: Trace) -> list[JudgedBufferRow]:
    if not sql.has_rows(trace, "judged_buffers"):
        return []
    found = sql.named(
        trace, _BUFFERS, json=("rules", "size", "index", "fragment", "inputs", "source", "files", "suspects")
    )
    return [JudgedBufferRow(**row | {"source": _line(row["source"])}) for row in found]


def clobbered_inputs(trace: Trace) -> list[ClobberedInputRow]:
    if not sql.has_rows(trace, "clobbered_inputs"):
        return []
    return [ClobberedInputRow(**row) for row in sql.named(trace, _INPUTS)]


def launch_at(trace: Trace, call: int, position: int) -> tuple[int | None, str | None]:
    """Return the launch at a position of a call, and its kernel; None if there is none."""
    found = sql.row(trace, _AT_POSITION, [call, position])
    return (found[0], found[1]) if found is not None else (None, None)


def judged_count(trace: Trace) -> JudgedCount | None:
    """Return how many launches were judged, or None if no step was."""
    rows = sql.named(trace, _CALLS, json=("not_judged",))
    if not rows:
        return None
    reasons: Counter[str] = Counter()
    for row in rows:
        reasons.update(row["not_judged"])
    totals = {name: sum(row[name] for row in rows) for name in ("launches", "judged", "duration_ns")}
    return JudgedCount(len({row["step"] for row in rows}), reasons=dict(reasons.most_common()), **totals)


def _line(found: dict[str, Any] | None) -> SourceLine | None:
    return SourceLine(**found) if found else None
