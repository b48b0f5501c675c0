"""A frame was compiled again because a guard of its compiled code failed. There is one finding per frame, with the
number of recompiles and the guards that failed; logs in which the same frame recompiled for the same reasons share a
finding. Compiles that the recompile limit refused are not counted."""

from __future__ import annotations

import re
from collections import Counter

from stepscope.viewer.compiles.queries.events import CompileEvent
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
from stepscope.viewer.text.formats import plural

SUMMARY = "A frame was compiled again"

_REQUEST = re.compile(r"\.?\s*Please (?:open|file|report) an issue\b.*")
"""Request for reports of PyTorch's own bugs, which titles omit."""


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per frame, over all logs in which it is the same."""
    refused = {(event.log, event.compile_id) for event in evidence.compile_events("recompile_limit")}
    events = [event for event in evidence.compile_events("recompile") if (event.log, event.compile_id) not in refused]
    frames = grouped(events, lambda event: (event.log, event.frame_id))
    return [_finding(same[0], len(same)) for same in alike_in_logs(frames)]


def _finding(group: list[CompileEvent], logs: int) -> Timed:
    first, count = group[0], len(group)
    reasons = [_REQUEST.sub("", event.cause.partition(": ")[2] or event.cause) for event in group]
    return first.time_ns, Finding(
        kind="recompile",
        severity="info",
        title=f"{count:,} recompile{'s' if count > 1 else ''} of {first.name}{in_logs(logs)}: {_told(reasons)}",
        rule=rule_of(__doc__),
        evidence={
            "recompiles": count,
            **logs_of(logs),
            "compile_ids": [event.compile_id for event in group[:MOST_EXAMPLES]],
            "reasons": [reason for reason, _ in Counter(reasons).most_common(MOST_EXAMPLES)],
        },
        **place_of(group[-1]),
    )


def _told(reasons: list[str]) -> str:
    """Return the last reason and the number of other reasons."""
    others = len(set(reasons)) - 1
    return reasons[-1] + (f", and {plural(others, 'other reason')}" if others else "")
