"""Queries how long steps take that call no compiled graph."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_STEPS = """
    WITH timed AS (
        SELECT step, start_ns, end_ns, duration_ns FROM steps
        WHERE log = $1 AND calls = 0 AND duration_ns > 0 AND coalesce(compile_ns, 0) = 0
    ), other AS (
        SELECT start_ns, duration_ns FROM optimizer_steps WHERE log = $1
        UNION ALL SELECT start_ns, duration_ns FROM data_waits WHERE log = $1
    ), each AS (
        SELECT t.step, any_value(t.duration_ns) AS step_ns,
               coalesce(sum(least(o.start_ns + o.duration_ns, t.end_ns) - greatest(o.start_ns, t.start_ns))
                        FILTER (o.start_ns IS NOT NULL), 0) AS other_ns
        FROM timed t LEFT JOIN other o ON o.start_ns < t.end_ns AND o.start_ns + o.duration_ns > t.start_ns
        GROUP BY t.step
    )
    SELECT count(*), median(step_ns)::BIGINT, median(greatest(0, step_ns - other_ns))::BIGINT FROM each
"""


class PlainSteps(NamedTuple):
    """Steps without a call of a compiled graph."""

    steps: int
    step_ns: int
    """Median of their time."""
    part_ns: int
    """Median of their time without that of optimizers of torch.optim and of waiting for a DataLoader."""


def plain_steps(trace: Trace, log: int) -> PlainSteps | None:
    """Return how long the steps of a log take that call no compiled graph, or None if there are none."""
    count, *times = sql.rows(trace, _STEPS, [log])[0]
    return PlainSteps(count, *times) if count else None
