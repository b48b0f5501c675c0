"""Dynamo ended a graph before the end of its function and ran a piece of it in Python, or all of it where it could not
go on after that piece. One finding per cause and place over the whole run."""

from __future__ import annotations

from viewer.findings.evidence import (
    MOST_EXAMPLES,
    Evidence,
    Timed,
    compile_page,
    grouped,
    rule_of,
    times,
)
from viewer.queries.compile_events import CompileEvent
from viewer.queries.rows import Finding


def find(evidence: Evidence) -> list[Timed]:
    """One finding per cause and line of source."""
    events = evidence.compile_events("graph_break")
    return [_finding(group) for group in grouped(events, _cause)]


def _cause(event: CompileEvent) -> tuple[str, str | None, int | None]:
    source = event.source
    return event.cause, source.file if source else None, source.line if source else None


def _finding(group: list[CompileEvent]) -> Timed:
    first = group[0]
    compiles = dict.fromkeys((event.log, event.compile_id) for event in group)
    whole = "; the whole function ran in Python" if first.status == "fallback" else ""
    return first.time_ns, Finding(
        kind="graph_break",
        severity="info",
        title=f"Graph break in {first.name}{times(len(compiles))}: {first.cause}{whole}",
        rule=rule_of(__doc__),
        evidence={
            "breaks": len(compiles),
            "compile_ids": list(dict.fromkeys(compile_id for _, compile_id in compiles))[:MOST_EXAMPLES],
            "explanation": first.text[:2000],
        },
        page=compile_page(first.log, first.compile_id),
        rank=first.rank,
        source=first.source,
        log=first.log,
    )
