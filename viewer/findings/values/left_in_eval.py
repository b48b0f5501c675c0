"""A module that was in train mode at first was in eval mode in the last five or more training steps, because nothing
called `train()` after an evaluation had called `eval()`. In eval mode, dropout does nothing, and batch norm uses its
running statistics and no longer updates them. The finding is derived from the compiles: a frame whose graphs train was
compiled again because its guard that a module is in train mode failed, and a graph for inference was called between the
last call of the old code and the first one of the new code, but never before. The line is the only one in between that
called `eval` of a module in train mode, else that of the frame. Steps that end without an optimizer do not count, nor
does a module that is put back into train mode later. Logs in which the same module of the same frame is left in eval
mode share a finding, and others have one each. A program may do so on purpose, to freeze batch norm."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from stepscope.viewer.compiles.queries.events import CompileEvent
from stepscope.viewer.compiles.queries.guard_text import failed_guards, same_source
from stepscope.viewer.compiles.queries.training_calls import CompileCalls, calls_of_compiles, eval_line
from stepscope.viewer.findings.evidence import (
    Evidence,
    Timed,
    as_subject,
    compile_page,
    grouped,
    in_logs,
    logs_of,
    place_of,
    rule_of,
)
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.overview.rows import Finding, ProofLink
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import basename, plural

SUMMARY = "A model was trained in eval mode after an evaluation"
TITLE_IS_MEASURED = True

LEAST_STEPS = 5
_IS_IN_TRAIN_MODE = re.compile(r"^(.+)\.training == True$")


class LeftInEval(NamedTuple):
    """A frame that was compiled again for a module in eval mode, and trained with it until the end."""

    event: CompileEvent
    module: str
    before: CompileCalls
    """The last calls with the module in train mode."""
    between: CompileCalls
    """The calls of inference that began next."""
    after: CompileCalls


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per log, or for several logs in which the same happened."""
    by_log = [_longest(same) for same in grouped(left_in_eval(evidence), lambda one: one.event.log)]
    alike = grouped(by_log, lambda found: (found[0].event.name, found[0].event.line, found[0].module))
    return [_finding(evidence.trace, *same[0], len(same)) for same in alike]


def _longest(of_log: Sequence[LeftInEval]) -> tuple[LeftInEval, int]:
    """Return the frame with most such steps, and the number of the others of its log."""
    return max(of_log, key=lambda left: left.after.steps), len(of_log) - 1


def left_in_eval(evidence: Evidence) -> list[LeftInEval]:
    """Return the frames that trained in eval mode after an evaluation, in the order of their compiles."""
    return evidence.trace.once(_left_in_eval)


def _left_in_eval(trace: Trace) -> list[LeftInEval]:
    events = [(one, modes) for one in Evidence(trace).compile_events("recompile") if (modes := _in_train_mode(one))]
    frames = grouped(calls_of_compiles(trace), lambda one: (one.log, one.frame_id)) if events else []
    calls = {(same[0].log, same[0].frame_id): same for same in frames}
    judged = [_judged(event, modes, calls.get((event.log, event.frame_id), [])) for event, modes in events]
    return [one for one in judged if one is not None]


def _in_train_mode(event: CompileEvent) -> dict[str, str]:
    """Return the modules that are no longer in train mode, by the compile whose guard tells it."""
    guards = [(guard.against, _IS_IN_TRAIN_MODE.match(guard.guard)) for guard in failed_guards(event.text)]
    return {against: same_source(match[1]) for against, match in guards if against is not None and match is not None}


def _judged(event: CompileEvent, guards: dict[str, str], calls: Sequence[CompileCalls]) -> LeftInEval | None:
    training = [one for one in calls if one.trains]
    old = [one for one in training if one.compile_id in guards]
    new = [one for one in training if one.compile_id == event.compile_id]
    evaluations = [one for one in calls if not one.trains]
    if not old or not new or not evaluations:
        return None
    before, after = max(old, key=lambda one: one.last_ns), new[0]
    between = evaluations[0]
    is_left = before.last_ns < between.first_ns < after.first_ns and after.last_ns == max(
        one.last_ns for one in training
    )
    if not is_left or after.steps < LEAST_STEPS:
        return None
    return LeftInEval(event, guards[before.compile_id], before, between, after)


def _finding(trace: Trace, one: LeftInEval, others: int, logs: int) -> Timed:
    event, steps = one.event, one.after.steps
    called = eval_line(trace, event.log, one.before.last_ns, one.between.first_ns)
    return event.time_ns, Finding(
        kind="left_in_eval",
        severity="warning",
        title=(
            f"{as_subject(event.name)} ran with {one.module} in eval mode in {steps:,} training steps, from step"
            f" {one.after.first_step:,} to the end, after an evaluation in step {one.between.first_step:,}"
            f"{in_logs(logs)}"
        ),
        proof=[
            f"It was in train mode up to step {one.before.last_step:,}{_until(called)}; call train() on the model after"
            " an evaluation.",
            "In eval mode, dropout does nothing, and batch norm uses its running statistics and does not update them.",
            *([f"{plural(others, 'other compiled function')} ran in eval mode, too"] if others else []),
        ],
        rule=rule_of(__doc__),
        evidence={
            "module": one.module,
            "compile_ids": [one.before.compile_id, event.compile_id],
            "steps": steps,
            "first_step": one.after.first_step,
            "evaluation_in_step": one.between.first_step,
            **logs_of(logs),
        },
        links=[ProofLink(f"open compile {event.compile_id}", compile_page(event.log, event.compile_id))],
        **place_of(event) | ({"source": called} if called else {}),
    )


def _until(called: SourceLine | None) -> str:
    """Return the line that called `eval` as the end of a clause, or "" if it is unknown."""
    return f", when {basename(called.file)}:{called.line} called eval()" if called else ""
