"""Recompiles of a frame took at least 20 % of the time of all steps of a log, and at least a second, and happened in at
least three steps and a quarter of all steps. The finding names the guard that failed most often. It replaces the
finding recompile for this frame. A frame that reached the recompile limit has a finding of the kind recompile_limit
instead. The finding is a warning."""

from __future__ import annotations

from stepscope.viewer.findings.compiles.guard_changes import advice_lines, guard_changes
from stepscope.viewer.findings.evidence import (
    MOST_EXAMPLES,
    Evidence,
    Timed,
    alike_in_logs,
    as_subject,
    in_logs,
    logs_of,
    place_of,
    recompiles_page,
    rule_of,
)
from stepscope.viewer.findings.speed.costly_recompiles import CostlyRecompiles, costly_recompiles
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.text.formats import format_ns, plural, steps_text

SUMMARY = "Recompiles take much of the run"


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per frame, over all logs in which it is the same: about that with the largest share."""
    found = {id(one.events): one for one in costly_recompiles(evidence)}
    groups = [[found[id(events)] for events in same] for same in alike_in_logs(one.events for one in found.values())]
    return [_finding(max(group, key=lambda one: one.duration_ns / one.run_ns), len(group)) for group in groups]


def _finding(one: CostlyRecompiles, logs: int) -> Timed:
    first, last, count = one.events[0], one.events[-1], len(one.events)
    changes = guard_changes(one.events)
    most = ""
    if changes:
        often = "each time" if changes[0].recompiles == count else plural(changes[0].recompiles, "time")
        most = f", {often} because {changes[0].text}"
    return first.time_ns, Finding(
        kind="recompiles_each_step",
        severity="warning",
        title=f"Recompiling {as_subject(first.name)} {plural(count, 'time')} took {format_ns(one.duration_ns)} of the"
        f" {format_ns(one.run_ns)} of this run{in_logs(logs)}{most}",
        rule=rule_of(__doc__),
        evidence={
            "share": round(one.duration_ns / one.run_ns, 4),
            "recompiles": count,
            **logs_of(logs),
            "recompile_ns": one.duration_ns,
            "run_ns": one.run_ns,
            "compile_ids": [event.compile_id for event in one.events[:MOST_EXAMPLES]],
            "values": changes[0].values[:MOST_EXAMPLES] if changes else [],
            "in_steps": one.steps[:MOST_EXAMPLES],
        },
        proof=[f"The recompiles happened in {steps_text(one.steps)}.", *advice_lines(changes)],
        **place_of(last) | {"page": recompiles_page(last)},
    )
