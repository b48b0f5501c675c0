"""Each training step also calls the function that it trains without gradients, as an evaluation in each step does. In
at least 90 % of at least eight training steps that an optimizer ends, there are two or more such calls, and more than
with gradients, which take at least 25 % of the step. The first of these steps does not count, nor do those in which
something was compiled. The time of the calls is that from the begin of the first to the end of the last one between
which the step does not train, with the program's own code between them, but without steps of optimizers and the
recorder's own time. Waiting for data counts, unless it takes so much of a step that there is a finding of the kind
data_waits. The finding tells the medians. That these calls differ from those with gradients in the grad mode must
follow from the reason of a recompile. Functions that are called again while a backward pass runs, as reentrant
checkpoints do, do not count. It is always information: rollouts of reinforcement learning and teacher networks look the
same, and need these calls. If the calls come before the training in a step, as rollouts do, and there is a finding of
the kind uncompiled_work about the code between them, this one is left out; if they come after it, uncompiled_work
leaves out the code between them. There is none on a GPU, where calls return before the device has computed them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import NamedTuple

from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.findings.speed.costly_gaps import costly_gaps
from stepscope.viewer.findings.speed.costs import Slowness, amount, facts_of, is_costly, one_per_cause
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.overview.queries.runs import list_steps
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.speed.queries.evaluations import Evaluation, Spans, caller, evaluations, other_times
from stepscope.viewer.speed.queries.gaps import GapCost, own_in_gaps
from stepscope.viewer.speed.queries.graph_places import GraphPlace, graph_places
from stepscope.viewer.speed.queries.periods import Periods
from stepscope.viewer.speed.queries.runs import run_splits
from stepscope.viewer.speed.queries.splits import step_splits
from stepscope.viewer.speed.rows import RunSplit
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import basename

SUMMARY = "Each training step evaluates the model"

LEAST_STEPS, LEAST_CALLS, LEAST_SHARE, MOST_STEPS = 8, 2, 0.25, 0.9
_ADVICE = "An evaluation once per epoch, or after a number of steps, takes this time only then."
_ALIKE = "Rollouts of reinforcement learning and teacher networks look the same, and need these calls."


class Evaluated(NamedTuple):
    """What the evaluations in the training steps of one log take."""

    run: RunSplit
    """With the training steps that count, and the median of their time."""
    part_ns: int
    calls: int
    typical: Evaluation
    """That of a step in the middle of the run."""
    spans: Spans
    """Those of all of them."""
    trains_later: bool

    def has(self, cost: GapCost) -> bool:
        """Return whether most of a gap passes in the evaluations."""
        periods = Periods(self.spans)
        within = sum(periods.within(*span) for span in cost.spans)
        return 2 * within > sum(end - start for start, end in cost.spans)


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding for all logs that evaluate at the same place."""
    return one_per_cause(evidence, _told(evidence))


def frequent_evaluations(trace: Trace) -> dict[int, Evaluated]:
    """Return the evaluations that training steps contain and that take much of them, by log."""
    return trace.once(_frequent)


def follow_training(trace: Trace, run: RunSplit, cost: GapCost) -> bool:
    """Return whether a gap is in an evaluation after the training of each step, which has a finding of this kind."""
    found = frequent_evaluations(trace).get(run.log)
    return found is not None and not found.trains_later and found.has(cost)


def _frequent(trace: Trace) -> dict[int, Evaluated]:
    found = evaluations(trace)
    runs = [run for run in run_splits(trace) if found.get(run.log) and not run.on_device]
    measured = {run.log: _measured(trace, run, found[run.log]) for run in runs}
    return {log: one for log, one in measured.items() if one is not None}


def _measured(trace: Trace, run: RunSplit, found: Sequence[Evaluation]) -> Evaluated | None:
    times = _times_of_training(trace, run.log)
    waited = sum(part.duration_ns for part in run.parts if part.kind == "data")
    apart = other_times(trace, run.log, data=is_costly(waited, run.typical_ns))
    much, parts = [], []
    for one in found:
        part = sum(end - start - apart.within(start, end) for start, end in one.spans) - one.own_ns
        is_often = one.calls >= LEAST_CALLS and one.calls > one.trained_calls
        if is_often and one.step in times and part >= LEAST_SHARE * times[one.step]:
            much.append(one)
            parts.append(part)
    if len(times) < LEAST_STEPS or len(much) < MOST_STEPS * len(times):
        return None
    return Evaluated(
        replace(run, typical_steps=len(times), typical_ns=round(median(times.values()))),
        part_ns=round(median(parts)),
        calls=round(median(one.calls for one in much)),
        typical=much[len(much) // 2],
        spans=[span for one in found for span in one.spans],
        trains_later=2 * sum(one.trains_later for one in much) > len(much),
    )


def _times_of_training(trace: Trace, log: int) -> dict[int, int]:
    """Return the time of the training steps that count without that of the recorder between calls (ns), by step."""
    splits = step_splits(trace, log)
    rows = [row for row in list_steps(trace, log) if row.kind == "train" and row.by == "optimizer"]
    quiet = [row.step for row in rows[1:] if row.step in splits and not splits[row.step].of("compile")]
    own = own_in_gaps(trace, log, quiet)
    return {step: splits[step].duration_ns - own.get(step, 0) for step in quiet}


def _told(evidence: Evidence) -> Iterator[Slowness]:
    gaps = costly_gaps(evidence.trace)
    for log, one in frequent_evaluations(evidence.trace).items():
        if one.trains_later and any(run.log == log and one.has(cost) for run, cost in gaps):
            continue
        places = graph_places(evidence.trace, [one.typical.graph, one.typical.trained])
        place, trained = places[one.typical.graph], places[one.typical.trained]
        cause = place.frame, place.source
        yield Slowness(cause, one.run, one.part_ns, partial(_finding, evidence, one, place, trained))


def _finding(evidence: Evidence, one: Evaluated, place: GraphPlace, trained: GraphPlace) -> Finding:
    run, source = one.run, place.source
    called_at = None
    if source is not None and trained.source is not None:
        called_at = caller(evidence.trace, run.log, one.spans, source, trained.source)
    at = f", at {_place(source)}" if source else ""
    by = f", called at {_place(called_at)}" if called_at else ""
    return Finding(
        kind="frequent_evaluation",
        severity="info",
        title=f"Each training step also calls {place.frame or 'its function'} {one.calls:,} times without"
        f" gradients{at}{by}, which takes {amount(one.part_ns, run.typical_ns)}",
        rule=rule_of(__doc__),
        evidence={**facts_of(run, one.part_ns), "calls": one.calls},
        proof=[_ADVICE, _ALIKE],
        page=f"/steps/{one.typical.step}?log={run.log}",
        rank=run.rank,
        log=run.log,
        graph=one.typical.graph,
        source=called_at or source,
    )


def _place(line: SourceLine) -> str:
    return f"{basename(line.file)}:{line.line}"
