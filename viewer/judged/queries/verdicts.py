"""Queries for the verdicts on the launches of a step, and on one launch."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from stepscope.viewer.judged.queries.judged import clobbered_inputs, judged_buffers
from stepscope.viewer.judged.rows import (
    VERDICTS,
    BufferVerdict,
    ClobberedInputRow,
    JudgedBufferRow,
    JudgedLaunch,
    JudgedStep,
    Verdict,
)
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

KEPT = 16
"""Number of steps whose verdicts an open trace keeps in memory."""
_COLUMNS = ("launch", "site", "buffer", "node", "verdict", "how", "of_limit", "reason")
_CALLS = """
    SELECT j.* EXCLUDE (graph, call), c.graph, c.call, j.call AS local_call FROM judged_calls j
    JOIN calls c ON c.log = j.log AND c.local_call = j.call WHERE j.log = ? AND j.step = ? ORDER BY j.call
"""
_LAUNCHES = "SELECT call, launch FROM launches WHERE list_contains(?, call) ORDER BY launch"
_SITES = "SELECT graph, local_site, site, kernel, kind FROM sites WHERE list_contains(?, graph)"
_STEPS = """
    SELECT log, step, sum(launches)::BIGINT, sum(judged)::BIGINT, sum(duration_ns)::BIGINT
    FROM judged_calls GROUP BY log, step ORDER BY log, step
"""


def judged_steps(trace: Trace) -> list[JudgedStep]:
    """Return the steps in which a launch was judged, in order."""
    wrong: defaultdict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
    suspect: defaultdict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
    counted = {"wrong": wrong, "suspect": suspect}
    for buffer in judged_buffers(trace):
        if buffer.verdict in counted:
            counted[buffer.verdict][buffer.log, buffer.step].add((buffer.call, buffer.position))
    for clobbered in clobbered_inputs(trace):
        wrong[clobbered.log, clobbered.step].add((clobbered.call, clobbered.position))
    return [
        JudgedStep(
            log,
            step,
            launches,
            judged,
            wrong=len(wrong[log, step]),
            suspect=len(suspect[log, step] - wrong[log, step]),
            duration_ns=duration_ns,
        )
        for log, step, launches, judged, duration_ns in sql.rows(trace, _STEPS)
    ]


def judged_launches(trace: Trace, log: int, step: int) -> list[JudgedLaunch]:
    """Return the verdicts on the launches of a step, in their order; nothing for a step that was not judged."""
    return trace.once(_judged_launches, log, step, most=KEPT) if sql.has_rows(trace, "judged_calls") else []


def verdict_on(trace: Trace, log: int, step: int, launch: int) -> JudgedLaunch | None:
    """Return the verdicts on a launch of a step, or None if the step was not judged."""
    return next((one for one in judged_launches(trace, log, step) if one.launch == launch), None)


def _judged_launches(trace: Trace, log: int, step: int) -> list[JudgedLaunch]:
    if not sql.has_rows(trace, "judged_calls"):
        return []
    calls = sql.named(trace, _CALLS, [log, step], json=("reasons", *_COLUMNS))
    if not calls:
        return []
    launches: defaultdict[int, list[int]] = defaultdict(list)
    for call, launch in sql.rows(trace, _LAUNCHES, [[call["call"] for call in calls]]):
        launches[call].append(launch)
    graphs = [call["graph"] for call in calls]
    sites = {(graph, number): rest for graph, number, *rest in sql.rows(trace, _SITES, [graphs])}
    details = {(row.call, row.position, row.buffer): row for row in judged_buffers(trace)}
    clobbered: defaultdict[tuple[int, int], list[ClobberedInputRow]] = defaultdict(list)
    for row in clobbered_inputs(trace):
        clobbered[row.call, row.position].append(row)
    found: list[JudgedLaunch] = []
    for call in calls:
        by_position = _by_position(call, details)
        for position, buffers in by_position.items():
            place = sites.get((call["graph"], buffers[0][0]))
            if place is None:  # the log lacks the record of the graph
                continue
            ids, (site, kernel, kind) = launches[call["call"]], place
            launch = ids[position] if 0 <= position < len(ids) else None
            verdicts = [verdict for _, verdict in buffers]
            at = (call["call"], position)
            found.append(JudgedLaunch(launch, log, step, call["graph"], site, kernel, kind, verdicts, clobbered[at]))
        for (number, position), rows in clobbered.items():
            if number == call["call"] and position not in by_position and rows:
                found.append(_without_buffers(rows))
    return found


def _without_buffers(rows: list[ClobberedInputRow]) -> JudgedLaunch:
    """Return a launch that read a changed input, if the record of its call has no buffer that it wrote."""
    one = rows[0]
    return JudgedLaunch(one.launch, one.log, one.step, one.graph, one.site, one.kernel, one.kind, clobbered=rows)


def _by_position(
    call: dict[str, Any], details: dict[tuple[int, int, str], JudgedBufferRow]
) -> dict[int, list[tuple[int, BufferVerdict]]]:
    """Return the verdicts of a call, each with the site's number in its graph, by the position of the launch."""
    found: defaultdict[int, list[tuple[int, BufferVerdict]]] = defaultdict(list)
    for position, site, buffer, *rest in zip(*(call[name] for name in _COLUMNS), strict=False):
        node, verdict, how, of_limit, reason = rest
        why = call["reasons"][reason] if reason in range(len(call["reasons"])) else None
        known: Verdict = next((one for one in VERDICTS if one == verdict), "unjudged")
        detail = details.get((call["call"], position, buffer))
        found[position].append((site, BufferVerdict(buffer, node, known, how, of_limit, why, detail)))
    return found
