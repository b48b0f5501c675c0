"""Queries the time in which devices worked in steps that PyTorch's profiler saw.

The work that a step enqueued may run after the step on the host. So its time on a device reaches from the end of the
work of the steps before to the end of its own work. Without earlier work it begins with the first call of the step."""

from __future__ import annotations

from collections.abc import Sequence

from stepscope.viewer.speed.rows import DeviceTime
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

# The work before a row is that which began earlier on the same device, on any stream.
_SPANS = """
    WITH ran AS (
        SELECT device, stream, kind, launch, step, duration_ns, start_ns, start_ns + duration_ns AS end_ns,
               max(start_ns + duration_ns) OVER (
                   PARTITION BY device ORDER BY start_ns, duration_ns DESC
                   ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
               ) AS before_ns
        FROM device_work WHERE log = $log
    ), own AS (
        SELECT device, coalesce(
                   max(end_ns) FILTER (step < $step OR step IS NULL),
                   (SELECT min(start_ns) FROM calls WHERE log = $log AND step = $step)
               ) AS start_ns, max(end_ns) FILTER (step = $step) AS end_ns
        FROM ran GROUP BY device
    )
    SELECT r.device, any_value(o.start_ns) AS start_ns, any_value(o.end_ns) AS end_ns,
           sum(greatest(0, least(r.end_ns, o.end_ns) - greatest(r.start_ns, o.start_ns, coalesce(r.before_ns, 0))))
               ::BIGINT AS busy_ns,
           sum(r.duration_ns) FILTER (r.step = $step)::BIGINT AS work_ns,
           count(DISTINCT r.stream) FILTER (r.step = $step) AS streams,
           count(*) FILTER (r.step = $step AND r.kind = 'kernel') AS kernels,
           count(*) FILTER (r.step = $step AND r.kind = 'collective') AS collectives,
           count(*) FILTER (r.step = $step AND r.kind IN ('copy', 'fill')) AS copies,
           count(*) FILTER (r.step = $step AND r.launch IS NULL) AS outside,
           coalesce(sum(r.duration_ns) FILTER (r.step = $step AND r.launch IS NULL), 0)::BIGINT AS outside_ns
    FROM ran r JOIN own o ON o.device = r.device AND o.end_ns > o.start_ns GROUP BY r.device ORDER BY r.device
"""
_IS_PROFILED = "SELECT EXISTS(FROM profiled_steps WHERE log = ? AND step = ?)"
# The work of a step that other launches had would not be that of the steps that are asked about.
_BUSY = """
    WITH typical AS (SELECT unnest($logs) AS log, unnest($steps) AS step), alike AS (
        SELECT DISTINCT s.log, s.launches FROM steps s JOIN typical t ON t.log = s.log AND t.step = s.step
    ), ran AS (
        SELECT w.log, w.step, w.start_ns, w.start_ns + w.duration_ns AS end_ns, max(w.start_ns + w.duration_ns) OVER (
                   PARTITION BY w.log, w.device ORDER BY w.start_ns, w.duration_ns DESC
                   ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
               ) AS before_ns
        FROM device_work w
    ), busy AS (
        SELECT r.log, r.step, sum(greatest(0, r.end_ns - greatest(r.start_ns, coalesce(r.before_ns, 0)))) AS busy_ns
        FROM ran r JOIN profiled_steps p ON p.log = r.log AND p.step = r.step
        JOIN steps s ON s.log = r.log AND s.step = r.step JOIN alike a ON a.log = s.log AND a.launches = s.launches
        GROUP BY ALL
    )
    SELECT log, median(busy_ns)::BIGINT FROM busy GROUP BY log
"""


def step_device_times(trace: Trace, log: int, step: int) -> list[DeviceTime]:
    """Return the time of each device that worked for a step; none if the step was not profiled."""
    if not sql.number(trace, _IS_PROFILED, [log, step]):
        return []
    return sql.records(DeviceTime, trace, _SPANS, {"log": log, "step": step})


def profiled_busy_ns(trace: Trace, logs: Sequence[int], steps: Sequence[int]) -> dict[int, int]:
    """Return the time in which the devices worked in a profiled step with as many launches as one of the given steps,
    by log; logs without such a step are left out."""
    if not sql.has_rows(trace, "profiled_steps"):
        return {}
    return dict(sql.rows(trace, _BUSY, {"logs": list(logs), "steps": list(steps)}))
