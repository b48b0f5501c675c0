"""A frame was compiled again because a guard of its compiled code failed. There is one finding per frame, with the
number of recompiles, the guards that failed, their values, and the time that the recompiles took of the run; logs in
which the same frame recompiled for the same reasons share a finding. So do frames that were recompiled in one step for
the same new state of PyTorch alone, such as grad mode, as at the begin of an evaluation. A frame that reached the
recompile limit has a finding of the kind recompile_limit instead, and one whose recompiles took much of the run has one
of the kind recompiles_each_step. A recompile for a module that was left in eval mode belongs to the finding
left_in_eval, and one for inputs that an operator refuses to the finding compile_failure. Where each frame was
recompiled once, for another grad mode or another input that requires gradients, the finding says so, because a program
that trains and evaluates, or that calls a function on inputs with and without gradients, needs both graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from stepscope.viewer.compiles.queries.compile_steps import compile_time, steps_of_compiles
from stepscope.viewer.compiles.queries.events import CompileEvent
from stepscope.viewer.findings.compiles.called_at_breaks import called_at_breaks
from stepscope.viewer.findings.compiles.guard_changes import (
    STATE,
    GuardChange,
    advice_lines,
    changes_text,
    guard_changes,
    is_of_another,
    reasons_of,
)
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
    names_text,
    place_of,
    recompiles_page,
    rule_of,
)
from stepscope.viewer.findings.speed.costly_recompiles import costly_recompiles
from stepscope.viewer.findings.values.left_in_eval import left_in_eval
from stepscope.viewer.overview.rows import Finding, ProofLink
from stepscope.viewer.speed.queries.runs import run_splits
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import format_ns, plural, steps_text

SUMMARY = "A frame was compiled again"


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per frame, over all logs in which it is the same."""
    limited = {(event.log, event.frame_id) for event in evidence.compile_events("recompile_limit")}
    costly = {(one.events[0].log, one.events[0].frame_id) for one in costly_recompiles(evidence)}
    called = called_at_breaks(evidence)
    told = limited | costly | called.frames | called.resumed
    left = {one.event for one in left_in_eval(evidence)}
    events = [one for one in evidence.compile_events("recompile") if (one.log, one.frame_id) not in told]
    failures = evidence.compile_events("compile_failure")
    refused = {(event.log, event.compile_id) for event in failures if event.is_refused}
    again = [
        event
        for event in events
        if event not in left and not is_of_another(event) and (event.log, event.compile_id) not in refused
    ]
    frames = grouped(again, lambda event: (event.log, event.frame_id, event.frame))
    return [_finding(evidence.trace, same[0], len(same)) for same in alike_in_logs(_joined(evidence.trace, frames))]


def _joined(trace: Trace, frames: list[list[CompileEvent]]) -> list[list[CompileEvent]]:
    """Join frames that were recompiled once, in one step of a log, for the same state of PyTorch."""
    once = [(events[0].log, events[0].compile_id) for events in frames if len(events) == 1]
    steps = steps_of_compiles(trace, once)

    def key(events: list[CompileEvent]) -> Hashable:
        first, (reason, *_) = events[0], reasons_of(events)
        if len(events) > 1 or not reason.startswith(STATE):
            return first.log, first.frame_id, first.frame
        return first.log, reason, steps.get((first.log, first.compile_id))

    return [[event for events in same for event in events] for same in grouped(frames, key)]


def _finding(trace: Trace, group: list[CompileEvent], logs: int) -> Timed:
    first, count = group[0], len(group)
    changes = guard_changes(group)
    compiles = [(event.log, event.compile_id) for event in group]
    steps = steps_of_compiles(trace, compiles)
    took_ns = compile_time(trace, compiles) or 0
    run_ns = next((run.duration_ns for run in run_splits(trace) if run.log == first.log), 0)
    is_known = 0 < took_ns <= run_ns
    in_steps = sorted(set(steps.values()))
    at = f" in {steps_text(in_steps)}" if in_steps else ""
    names = list(dict.fromkeys(event.name for event in group))
    others = len({(event.frame_id, event.frame) for event in group}) - 1
    last = first if others else group[-1]
    often = f" {plural(count, 'time')}" if count > 1 and not others else ""
    what = f"{first.name} and {plural(others, 'other function')} were" if others else f"{as_subject(first.name)} was"
    return first.time_ns, Finding(
        kind="recompile",
        severity="info",
        title=f"{what} recompiled{often}{in_logs(logs)}{at}: {changes_text(changes)}",
        rule=rule_of(__doc__),
        evidence={
            "recompiles": count,
            **logs_of(logs),
            "compile_ids": [event.compile_id for event in group[:MOST_EXAMPLES]],
            "reasons": [reason for reason, _ in Counter(reasons_of(group)).most_common(MOST_EXAMPLES)],
            "values": changes[0].values[:MOST_EXAMPLES],
            "in_steps": in_steps[:MOST_EXAMPLES],
            **({"share": round(took_ns / run_ns, 4), "recompile_ns": took_ns, "run_ns": run_ns} if is_known else {}),
        },
        proof=[
            *([f"The others: {names_text(names[1:])}"] if len(names) > 1 else []),
            *(_share(count, took_ns, run_ns) if is_known else []),
            *advice_lines(changes),
            *(_once(changes) if count == others + 1 else []),
        ],
        links=[ProofLink(f"open compile {last.compile_id}", compile_page(last.log, last.compile_id))],
        **place_of(last) | {"page": recompiles_page(last)},
    )


def _once(changes: Sequence[GuardChange]) -> list[str]:
    """Return why a program may need both graphs, if the state changed for which code is compiled once."""
    if changes[0].is_of_grad_mode:
        return [
            "This happened once: a program needs both graphs if it trains, and evaluates under torch.no_grad(), or if"
            " it calls checkpoint(..., use_reentrant=True), which runs the forward pass under torch.no_grad() first."
        ]
    if changes[0].is_of_gradients:
        return [
            "This happened once: a program needs both graphs if it calls the function on inputs with and without"
            " gradients, as in the first and in later layers."
        ]
    return []


def _share(count: int, took_ns: int, run_ns: int) -> list[str]:
    what = "recompile" if count == 1 else "recompiles"
    return [f"The {what} took {format_ns(took_ns)} of the {format_ns(run_ns)} of this run."]
