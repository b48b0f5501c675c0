"""Reads the work of devices that PyTorch's profiler saw: that of a launch, and the streams of a step."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.viewer.overview.rows import StepRow
from stepscope.viewer.steps.queries.step_launches import UNKNOWN, StepLaunches
from stepscope.viewer.steps.rows import DeviceWorkRow, LaunchDetail, StreamLane
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

KEPT = 16
"""Number of steps of which an open trace keeps the work in memory."""
MOST = 200
_OF_LAUNCH = """
    SELECT name, kind, device, stream, start_ns - $start, duration_ns FROM device_work
    WHERE log = $log AND launch = $launch ORDER BY start_ns, duration_ns LIMIT $most
"""
_END = """
    SELECT max(start_ns + duration_ns) FROM device_work
    WHERE log = $1 AND step = $2 AND EXISTS(FROM profiled_steps WHERE log = $1 AND step = $2)
"""
_DURING = """
    SELECT w.device, w.stream, w.name, w.start_ns - $origin AS since_ns, w.duration_ns,
           coalesce(w.launch, -1) AS launch, coalesce(s.kind, w.kind) AS kind
    FROM device_work w LEFT JOIN launches l ON l.launch = w.launch LEFT JOIN sites s ON s.site = l.site
    WHERE w.log = $log AND w.start_ns <= $stop AND w.start_ns + w.duration_ns >= $origin
"""


@dataclass(frozen=True)
class StepWork:
    """The work of devices during a step, as launches of streams."""

    streams: list[StreamLane]
    names: list[dict[str, str]]
    work: StepLaunches


def launch_work(trace: Trace, launch: LaunchDetail) -> list[DeviceWorkRow]:
    """Return the work of a launch in the order in which it ran, at most `MOST`; none if its step was not profiled."""
    place = {"log": launch.log, "launch": launch.launch, "start": launch.start_ns, "most": MOST}
    return [DeviceWorkRow(*row) for row in sql.rows(trace, _OF_LAUNCH, place)]


def work_end_ns(trace: Trace, log: int, step: int) -> int | None:
    """Return the end of the last work of a profiled step; None if the step was not profiled."""
    found: int | None = sql.number(trace, _END, [log, step])
    return found


def step_work(trace: Trace, row: StepRow, end_ns: int) -> StepWork | None:
    """Return the work during a step that ends at `end_ns`; None if PyTorch's profiler saw none."""
    if not sql.has_rows(trace, "device_work"):
        return None
    return trace.once(_read, row.log, row.start_ns, end_ns, most=KEPT)


def _read(trace: Trace, log: int, start_ns: int, end_ns: int) -> StepWork | None:
    import numpy as np

    found = sql.columns(trace, _DURING, {"log": log, "origin": start_ns, "stop": end_ns})
    count = len(found["launch"])
    if not count:
        return None
    rows = zip(found["since_ns"].tolist(), found["device"].tolist(), found["stream"].tolist(), strict=True)
    first = sorted(rows)
    lanes = list(dict.fromkeys((device, stream) for _, device, stream in first))
    names: dict[tuple[str, str], int] = {}
    site = [
        names.setdefault((name, kind), len(names))
        for name, kind in zip(found["name"].tolist(), found["kind"].tolist(), strict=True)
    ]
    of_lane = {lane: index for index, lane in enumerate(lanes)}
    pairs = zip(found["device"].tolist(), found["stream"].tolist(), strict=True)
    thread = np.array([of_lane[pair] for pair in pairs], dtype=np.int16)
    order = np.lexsort((found["launch"], found["since_ns"], thread))
    unknown = np.full(count, UNKNOWN, np.int8)
    work = StepLaunches(
        np.arange(len(lanes)), found["launch"][order], np.array(site)[order], thread[order],
        found["since_ns"][order], found["duration_ns"][order], unknown, unknown,
    )  # fmt: skip
    return StepWork(
        [StreamLane(*lane) for lane in lanes], [{"kernel": name, "kind": kind} for name, kind in names], work
    )
