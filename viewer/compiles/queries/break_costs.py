"""Queries what graph breaks cost: compiles and calls of the functions that resume after them, and the buffers held."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

from stepscope.viewer.memory.queries.graph_breaks import HeldBuffer, held_across_breaks
from stepscope.viewer.memory.queries.graphs import has_lifetimes
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_RESUME = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)$")
_ORIGIN = "regexp_replace({}, '^torch_dynamo_resume_in_(.*)_at_[0-9]+$', '\\1')"
_COMPILES = """
    SELECT log, file, function, count(*), sum(duration_ns)::BIGINT, list(compile_id) FROM compiles
    WHERE starts_with(function, 'torch_dynamo_resume_in_') GROUP BY ALL
"""
_CALLS = f"""
    WITH forward AS (
        SELECT c.*, f.file, f.function AS frame_function
        FROM calls c JOIN graphs g ON g.graph = c.graph
        JOIN compiles f ON f.log = g.log AND f.compile_id = g.compile_id
        WHERE g.phase IS DISTINCT FROM 'backward'
    ), outermost AS (
        SELECT *, start_ns - lag(start_ns + duration_ns) OVER w AS between_ns, lag(frame_function) OVER w AS before
        FROM forward WHERE parent IS NULL WINDOW w AS (PARTITION BY log, step, thread ORDER BY start_ns)
    ), launched AS (
        SELECT log, file, frame_function, sum(launches)::BIGINT AS launches FROM forward GROUP BY ALL
    )
    SELECT o.log, o.file, o.frame_function, count(*) AS calls, any_value(l.launches) AS launches,
           sum(o.duration_ns)::BIGINT AS calls_ns,
           median(o.between_ns) FILTER ({_ORIGIN.format("o.before")} = {_ORIGIN.format("o.frame_function")})
    FROM outermost o JOIN launched l
      ON l.log = o.log AND l.file IS NOT DISTINCT FROM o.file AND l.frame_function = o.frame_function
    WHERE starts_with(o.frame_function, 'torch_dynamo_resume_in_') GROUP BY o.log, o.file, o.frame_function
"""


@dataclass(frozen=True)
class Resumed:
    """The compiles and calls of the function that resumes after one line."""

    compiles: int
    compile_ns: int | None
    compile_ids: list[str]
    calls: int
    launches: int
    """Launches of all these calls."""
    calls_ns: int | None
    """Host time of all these calls."""
    between_ns: int | None
    """Median time from the end of the call before the break to the beginning of the resumed call."""


Place = tuple[int, str | None, str, int]
"""Log, file, function and line of a break."""


def resumed_functions(trace: Trace) -> dict[Place, Resumed]:
    """Return what was resumed after each line."""
    called = {tuple(key): rest for *key, rest in ((*row[:3], row[3:]) for row in sql.rows(trace, _CALLS))}
    found: dict[Place, Resumed] = {}
    for log, file, function, count, total, compile_ids in sql.rows(trace, _COMPILES):
        match = _RESUME.match(function)
        if match:
            calls, launches, calls_ns, between_ns = called.get((log, file, function), (0, 0, None, None))
            between = None if between_ns is None else round(between_ns)
            found[log, file, match[1], int(match[2])] = Resumed(
                count, total, compile_ids, calls, launches, calls_ns, between
            )
    return found


def function_of(function: str | None) -> str:
    """Return the name of the program's function, of which a resume function is a part."""
    name = (function or "").rsplit(".", 1)[-1]
    match = _RESUME.match(name)
    return match[1] if match else name


def held_buffers(trace: Trace) -> dict[tuple[int, str], list[HeldBuffer]] | None:
    """Return the buffers held by log and compile of the resumed function; None if storages were not tracked."""
    if not has_lifetimes(trace):
        return None
    found: defaultdict[tuple[int, str], list[HeldBuffer]] = defaultdict(list)
    for one in held_across_breaks(trace):
        found[one.log, one.into_compile_id].append(one)
    return dict(found)
