"""A frame reached torch._dynamo.config.recompile_limit (or cache_size_limit). It runs without being compiled from then
on; with `fullgraph=True` the call raises an error instead. That error makes the finding critical when it ended the
program, and information only when the program caught it and went on. Logs in which the same frame reached the limit
share one finding. It includes the recompiles of the frame before the limit, with their share of the time of all steps
of the log. If the time between calls of compiled graphs in which the frame has run since then takes at least 25 % and 2
ms of each typical step, the finding says so."""

from __future__ import annotations

import re
from collections import Counter

from stepscope.viewer.compiles.queries.compile_steps import compile_time, steps_of_compiles
from stepscope.viewer.compiles.queries.events import CompileEvent
from stepscope.viewer.findings.compiles.called_at_breaks import called_at_breaks
from stepscope.viewer.findings.compiles.compile_fates import SEVERITIES, Fates
from stepscope.viewer.findings.compiles.guard_changes import advice_lines, changes_text, guard_changes, reasons_of
from stepscope.viewer.findings.evidence import (
    MOST_EXAMPLES,
    Evidence,
    Timed,
    alike_in_logs,
    as_subject,
    compile_page,
    grouped,
    in_logs,
    logs_of,
    place_of,
    recompiles_page,
    rule_of,
)
from stepscope.viewer.findings.speed.costly_gaps import costly_gaps
from stepscope.viewer.findings.speed.costs import amount, facts_of
from stepscope.viewer.overview.rows import Finding, ProofLink
from stepscope.viewer.speed.queries.runs import run_splits
from stepscope.viewer.speed.rows import RunSplit
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import format_ns, plural

SUMMARY = "A frame reached the recompile limit"

_LIMIT = re.compile(r"(?:currently set to|limit[^\d\n]{0,40}\()\s*(\d{1,9})")


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per frame, over all logs in which it is the same."""
    called = called_at_breaks(evidence)
    frames = grouped((one for one in evidence.compile_events("recompile_limit") if not called.has(one)), _frame)
    if not frames:
        return []
    recompiles = {_frame(same[0]): same for same in grouped(evidence.compile_events("recompile"), _frame)}
    fates = Fates(evidence)
    return [
        _finding(evidence.trace, same[0], recompiles.get(_frame(same[0][0]), []), len(same), fates)
        for same in alike_in_logs(frames)
    ]


def _frame(event: CompileEvent) -> tuple[int, str]:
    return event.log, event.frame_id


def _finding(trace: Trace, group: list[CompileEvent], recompiles: list[CompileEvent], logs: int, fates: Fates) -> Timed:
    """Return the finding of one frame. `recompiles` are all reasons, those of the refused compiles included."""
    first = group[0]
    name = as_subject((recompiles or [first])[0].name)
    refused = {event.compile_id for event in group}
    done = [event for event in recompiles if event.compile_id not in refused]
    limit, changes = _LIMIT.search(first.text), guard_changes(recompiles)
    steps = steps_of_compiles(trace, [(event.log, event.compile_id) for event in (*recompiles, first)])
    reached = f" ({limit[1]})" if limit else ""
    step = steps.get((first.log, first.compile_id))
    at = f" in step {step}" if step is not None else f" in compile {first.compile_id}"
    then = "the call raised an exception" if first.status == "failed" else "has run uncompiled since then"
    took_ns = compile_time(trace, [(event.log, event.compile_id) for event in done]) if done else None
    run_ns = next((run.duration_ns for run in run_splits(trace) if run.log == first.log), None)
    gaps = ((run, cost) for run, cost in costly_gaps(trace) if run.log == first.log)
    since = next(((run, cost.part_ns) for run, cost in gaps if refused & {*cost.fallbacks}), None)
    cause = f": {changes_text(changes)}" if changes else ""
    return first.time_ns, Finding(
        kind="recompile_limit",
        severity=SEVERITIES[fates.of(group[-1])] if first.status == "failed" else "warning",
        title=f"{name} reached the recompile limit{reached}{in_logs(logs)}{at}, and {then}{cause}",
        rule=rule_of(__doc__),
        evidence={
            "limit": int(limit[1]) if limit else None,
            "recompiles": len(done),
            "refused_compiles": len(group),
            **logs_of(logs),
            "compile_id": first.compile_id,
            "compile_ids": [event.compile_id for event in done[:MOST_EXAMPLES]],
            "reasons": [reason for reason, _ in Counter(reasons_of(done)).most_common(MOST_EXAMPLES)],
            "recompile_ns": took_ns,
            "run_ns": run_ns,
            **(facts_of(*since) if since else {"share": round(took_ns / run_ns, 4)} if took_ns and run_ns else {}),
            "values": changes[0].values[:MOST_EXAMPLES] if changes else [],
            "in_steps": sorted(set(steps.values()))[:MOST_EXAMPLES],
            "last_reasons": [event.cause for event in recompiles if event.compile_id in refused][:MOST_EXAMPLES],
        },
        proof=[*_proof(took_ns, done, run_ns), *_since(since), *advice_lines(changes)],
        links=[ProofLink(f"open compile {first.compile_id}", compile_page(first.log, first.compile_id))],
        step=step,
        **place_of(first) | {"page": recompiles_page(first), "source": (done or [first])[-1].source},
    )


def _proof(took_ns: int | None, done: list[CompileEvent], run_ns: int | None) -> list[str]:
    if not done:
        return []
    of_run = f" of the {format_ns(run_ns)} of this run" if run_ns and took_ns and took_ns <= run_ns else ""
    return [
        f"The frame was compiled {plural(len(done) + 1, 'time')}; its {plural(len(done), 'recompile')} took"
        f" {format_ns(took_ns)}{of_run}."
    ]


def _since(since: tuple[RunSplit, int] | None) -> list[str]:
    if since is None:
        return []
    run, part_ns = since
    took = amount(part_ns, run.typical_ns)
    return [f"Since then, the time between calls of compiled graphs, in which the frame runs, is {took}."]
