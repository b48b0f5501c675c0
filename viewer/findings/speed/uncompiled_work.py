"""Code that is not compiled takes at least 25 % and 2 ms of each typical step between two calls of compiled graphs,
before the first of them or after the last. Only the time counts for which the thread computes, as far as the log shows
it: for the rest it waits, or the machine runs other programs. If samples show that more of it passes at one line of the
program, as where a file is written, that counts, without the part in which the thread waits for a core of the machine,
unless this line calls the function that contains the loop. The code at graph breaks, waiting for a DataLoader and the
steps of optimizers of torch.optim do not count, nor does compiling, nor the recorder's own time. On a GPU the time
counts as far as the device is idle, by the launches that were measured or profiled. Where several ranks run, the time
after a backward pass or after the last call of a step does not count, because ranks exchange tensors in it, nor that in
which the thread computes for less than half; and there is no finding if a rank is slower than the others, because the
others wait for it. Where each call is a step, as in a server, waiting between the steps is no part of a step. In all
programs, waiting for a core of the machine is none, in these times and in calls, as far as the recorder has looked.
Typical steps are those of medium duration in which nothing was compiled; there must be four. The finding names the
lines of the calls, and the line of the program in which at least half of the samples of this time are, if the recorder
took eight or more, or the lines of the function that it calls if the samples are spread over them: it looks where the
thread is once four such times were long. It says that the time passes in Python code up to this line if the thread
could mostly not be seen before. The times between the calls of loops, and those between their backward passes, are one
finding. It is a warning from 50 % on. It says if the thread computes for less than half of the time from one call to
the other. If a function runs there that a graph break keeps from being compiled, there is a finding of the kind
break_in_hot_loop or synchronizing_call instead, and for evaluations that follow the training in each step one of the
kind frequent_evaluation. Between backward passes the finding names such functions as the probable cause, because their
backward passes run there."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import partial

from stepscope.viewer.compiles.queries.events import CompileEvent
from stepscope.viewer.findings.evidence import Evidence, Timed, grouped, rule_of
from stepscope.viewer.findings.speed import slow_rank
from stepscope.viewer.findings.speed.costly_gaps import costly_gaps
from stepscope.viewer.findings.speed.costs import Slowness, amount, facts_of, one_per_cause, step_page
from stepscope.viewer.findings.speed.frequent_evaluation import follow_training
from stepscope.viewer.findings.speed.hot_lines import mostly, samples_text
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.speed.queries.gap_lines import MOST, HotLine, hot_line
from stepscope.viewer.speed.queries.gaps import GapCost
from stepscope.viewer.speed.rows import RunSplit
from stepscope.viewer.text.formats import basename, format_ns, plural

SUMMARY = "Code that is not compiled takes much of each step"

WARNING_SHARE = 0.5
LEAST_TOLD_NS = 100_000
"""Minimum of the recorder's own time per step that is told."""


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per place, over all logs in which it is the same."""
    return one_per_cause(evidence, _slow(evidence))


def _slow(evidence: Evidence) -> Iterator[Slowness]:
    gaps = [(run, cost) for run, cost in costly_gaps(evidence.trace) if not cost.fallbacks]
    found = [(run, cost) for run, cost in gaps if not follow_training(evidence.trace, run, cost)]
    has_ranks = len({run.rank for run in evidence.runs}) > 1
    if not found or (has_ranks and slow_rank.find(evidence)):
        return
    work = [(run, cost) for run, cost in found if not (has_ranks and _may_wait_for_ranks(cost))]
    for same in grouped(work, _loop_or_place):
        (run, cost), *_ = same
        costs = [one for _, one in same]
        spent = sum(one.part_ns for one in costs)
        yield Slowness((cost.kind, cost.before, cost.after), run, spent, partial(_finding, evidence, run, costs, spent))


def _loop_or_place(found: tuple[RunSplit, GapCost]) -> Hashable:
    """Return the same for all gaps of loops in a log, such as the calls of one and their backward passes."""
    run, cost = found
    return run.log if cost.is_of_loop else (run.log, cost.kind, cost.before, cost.after)


def _may_wait_for_ranks(cost: GapCost) -> bool:
    return (
        cost.waited_ns > cost.part_ns
        or cost.kind == "after"
        or (cost.before is not None and cost.before.phase == "backward")
    )


def _finding(evidence: Evidence, run: RunSplit, costs: Sequence[GapCost], part_ns: int) -> Finding:
    cost, *others = costs
    also = "".join(dict.fromkeys(_also(other, cost) for other in others if other.place != cost.place))
    near = cost.after if cost.kind == "outside" else cost.before
    hot = hot_line(evidence.trace, run.log, cost.spans)
    is_most = 2 * cost.part_ns >= part_ns
    in_python = _run_by_python(evidence, run, cost) if is_most else []
    source = hot.innermost if hot else near.source if near else None
    return Finding(
        kind="uncompiled_work",
        severity="warning" if part_ns >= WARNING_SHARE * run.typical_ns else "info",
        title=f"Work outside of compiled code takes {amount(part_ns, run.typical_ns)}, {cost.where}{also}"
        f"{_cause(in_python) or (mostly(hot, cost.where + also) if is_most else '')}",
        rule=rule_of(__doc__),
        evidence={**facts_of(run, part_ns), "times": cost.times},
        proof=[*map(_because, in_python), *_proof(cost, hot, "other threads" if in_python else "a disk")],
        page=step_page(evidence, run),
        rank=run.rank,
        log=run.log,
        source=source,
    )


def _run_by_python(evidence: Evidence, run: RunSplit, cost: GapCost) -> list[CompileEvent]:
    """Return the graph breaks because of which Python runs whole functions, if backward passes may run in a gap."""
    if cost.before is None or cost.after is None or {cost.before.phase, cost.after.phase} != {"backward"}:
        return []
    events = evidence.compile_events("graph_break")
    given_up = [event for event in events if event.log == run.log and event.status == "fallback" and event.source]
    return [same[0] for same in grouped(given_up, lambda event: (event.frame, event.file, event.line))]


def _cause(in_python: Sequence[CompileEvent]) -> str:
    names = list(dict.fromkeys(event.name for event in in_python))
    others = f" and {plural(len(names) - 1, 'other function')}" if len(names) > 1 else ""
    runs = "which runs" if len(names) == 1 else "which run"
    reason = f"{runs} uncompiled because of {'a graph break' if len(in_python) == 1 else 'graph breaks'}"
    return f", probably in the backward pass of {names[0]}{others}, {reason}" if names else ""


def _because(event: CompileEvent) -> str:
    return f"Python runs all of {event.name} because of the graph break at {basename(event.file or '')}:{event.line}."


def _also(other: GapCost, first: GapCost) -> str:
    return f" and at {other.place}" if other.is_in_backward == first.is_in_backward else f" and {other.where}"


def _proof(cost: GapCost, hot: HotLine | None, awaited: str) -> list[str]:
    is_repeated = cost.times > 1 and not cost.is_in_backward
    told = [*samples_text(hot), *([_MANY.format(cost.times)] if is_repeated else [])]
    if cost.waited_ns > cost.part_ns:
        told.append(
            f"The thread also waits there for {format_ns(cost.waited_ns)} per step, which may be for a core of the"
            " machine; this time is not counted."
        )
    elif hot is not None and cost.computed_ns is not None and cost.computed_ns < MOST * cost.part_ns:
        computed = f"for {format_ns(cost.computed_ns)} of it" if cost.computed_ns else "hardly"
        told.append(_WAITS.format(computed, awaited))
    if cost.core_ns >= LEAST_TOLD_NS:
        told.append(_FOR_CORE.format(format_ns(cost.core_ns)))
    return [*told, _OWN.format(format_ns(cost.own_ns))] if cost.own_ns >= LEAST_TOLD_NS else told


_WAITS = "The thread computes {}; otherwise it waits there, for example for {} or for a core of the machine."
_FOR_CORE = "In a step, the thread waits for a core of the machine for about {}, which is not counted."
_OWN = "The recorder itself takes about {} per step in this time, which is not counted."
_MANY = (
    "This happens {:,} times in a step. Each time Dynamo also checks the guards of the next call; one compiled function"
    " around several of these calls leaves that out."
)
