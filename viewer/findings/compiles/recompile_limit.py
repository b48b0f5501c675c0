"""A frame reached torch._dynamo.config.recompile_limit (or cache_size_limit). It runs without being compiled from then
on; with `fullgraph=True` the call raises an error instead. That error makes the finding critical when it ended the
program, and information only when the program caught it and went on. Logs in which the same frame reached the limit
share one finding."""

from __future__ import annotations

import re

from stepscope.viewer.compiles.queries.events import CompileEvent
from stepscope.viewer.findings.compiles.compile_fates import SEVERITIES, Fates
from stepscope.viewer.findings.evidence import (
    MOST_EXAMPLES,
    Evidence,
    Timed,
    alike_in_logs,
    grouped,
    in_logs,
    logs_of,
    place_of,
    rule_of,
)
from stepscope.viewer.overview.rows import Finding

SUMMARY = "A frame reached the recompile limit"

_LIMIT = re.compile(r"(?:currently set to|limit[^\d\n]{0,40}\()\s*(\d{1,9})")


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per frame, over all logs in which it is the same."""
    reasons = {(event.log, event.compile_id): event.cause for event in evidence.compile_events("recompile")}
    frames = grouped(evidence.compile_events("recompile_limit"), lambda event: (event.log, event.frame_id))
    if not frames:
        return []
    fates = Fates(evidence)
    return [_finding(same[0], reasons, len(same), fates) for same in alike_in_logs(frames)]


def _finding(group: list[CompileEvent], reasons: dict[tuple[int, str], str], logs: int, fates: Fates) -> Timed:
    first = group[0]
    limit = _LIMIT.search(first.text)
    last = [reasons[event.log, event.compile_id] for event in group if (event.log, event.compile_id) in reasons]
    reached = f" ({limit[1]})" if limit else ""
    then = "the call raised at" if first.status == "failed" else "it has run uncompiled since"
    return first.time_ns, Finding(
        kind="recompile_limit",
        severity=SEVERITIES[fates.of(group[-1])] if first.status == "failed" else "warning",
        title=f"{first.name} reached the recompile limit{reached}{in_logs(logs)}: {then} {first.compile_id}",
        rule=rule_of(__doc__),
        evidence={
            "limit": int(limit[1]) if limit else None,
            "refused_compiles": len(group),
            **logs_of(logs),
            "last_reasons": last[:MOST_EXAMPLES],
        },
        **place_of(first),
    )
