"""Inductor's autotuner measured several ways to compute an operation, such as a matrix product, and the generated code
uses one that is not the fastest: one of the program's own choices, such as a handler of choices or a threshold, or the
layout of a tensor kept the fastest from being used. The choice in use was measured at 1.3 times the time of the fastest
one or more, and nine of ten launches in typical steps take that long, too. The kernel computes nothing else, as another
choice may be slower by itself and faster with what is fused into it. The time that the fastest choice would save is at
least 15 % and 1 ms of each typical step, those of medium duration in which nothing was compiled; there must be four. It
is a warning from 30 % on. Launches on a GPU count only where their time on the device was measured. That launches take
longer than the autotuner measured is no finding, as a busy machine does the same to all choices."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.findings.speed.costs import (
    Slowness,
    amount,
    facts_of,
    is_costly,
    one_per_cause,
    severity_of,
    steady_runs,
    steps_of_runs,
)
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.speed.queries.launch_costs import SiteCost, kernel_costs, quickest_tenths
from stepscope.viewer.speed.rows import RunSplit
from stepscope.viewer.text.formats import format_ns, plural
from stepscope.viewer.values.queries.tunings import Tuning, tunings

SUMMARY = "The autotuner measured a faster choice than the one in use"

FACTOR = 1.3


class _Slow(NamedTuple):
    """A launch site that the fastest choice would make faster."""

    tuning: Tuning
    cost: SiteCost
    chosen_ns: int
    """What the autotuner measured for the choice in use."""
    fastest_ns: int
    quick_ns: int
    """What nine of ten launches take at least."""
    part_ns: int
    """The time that the fastest choice would save in a typical step, by what the autotuner measured or, if that is
    less, by the quickest launches."""


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding for all logs in which the same kernel loses most."""
    return one_per_cause(evidence, _slow(evidence))


def _slow(evidence: Evidence) -> Iterator[Slowness]:
    candidates = {one.site: one for one in tunings(evidence.trace) if _is_candidate(one)}
    logs = {one.log for one in candidates.values()}
    runs = [run for run in steady_runs(evidence) if run.log in logs]
    steps = steps_of_runs(evidence, runs)
    costs, quick = kernel_costs(evidence.trace, steps), quickest_tenths(evidence.trace, steps, [*candidates])
    for run in runs:
        of_log = [
            _judged(candidates[cost.site], cost, quick.get(cost.site), len(steps[run.log]))
            for cost in costs.get(run.log, ())
            if cost.site in candidates
        ]
        found = sorted((one for one in of_log if one is not None), key=lambda one: -one.part_ns)
        spent = sum(one.part_ns for one in found)
        if found and is_costly(spent, run.typical_ns):
            first = found[0].cost
            yield Slowness((first.kernel, first.source), run, spent, partial(_finding, run, found))


def _is_candidate(one: Tuning) -> bool:
    chosen_ns, fastest_ns = one.choice.duration_ns, one.fastest_ns
    return one.is_alone and bool(chosen_ns and fastest_ns and chosen_ns >= FACTOR * fastest_ns)


def _judged(tuning: Tuning, cost: SiteCost, quick_ns: int | None, steps: int) -> _Slow | None:
    """Return what a site loses; None if its launches are not slower than the fastest choice."""
    chosen_ns, fastest_ns = tuning.choice.duration_ns, tuning.fastest_ns
    if not chosen_ns or not fastest_ns or quick_ns is None or quick_ns < FACTOR * fastest_ns:
        return None
    saved_ns = min(chosen_ns, quick_ns) - fastest_ns  # the autotuner finds its inputs in the caches, other than a step
    return _Slow(tuning, cost, chosen_ns, fastest_ns, quick_ns, round(saved_ns * cost.launches / steps))


def _finding(run: RunSplit, found: list[_Slow]) -> Finding:
    first, spent = found[0], sum(one.part_ns for one in found)
    choices = first.tuning.choices
    others = f" and {plural(len(found) - 1, 'other launch')} of a step" if len(found) > 1 else ""
    return Finding(
        kind="slow_choice",
        severity=severity_of(spent / run.typical_ns),
        title=f"The fastest choice that the autotuner measured would save {amount(spent, run.typical_ns)}, but"
        f" {first.cost.kernel}{others} {'use' if others else 'uses'} another one",
        rule=rule_of(__doc__),
        evidence={
            **facts_of(run, spent),
            "kernels": [
                {"kernel": one.cost.kernel, "part_ns": one.part_ns, "chosen_ns": one.chosen_ns,
                 "fastest_ns": one.fastest_ns, "launches": one.cost.launches}
                for one in found
            ],
        },
        proof=[
            f"For {first.tuning.operator}, {first.tuning.choice.kernel} is in use, which the autotuner measured at"
            f" {format_ns(first.chosen_ns)} and whose launches take at least {format_ns(first.quick_ns)};"
            f" {choices[0].kernel} took {format_ns(first.fastest_ns)}.",
            "Let Inductor take the fastest choice: look for what overrides its choice, such as a choices handler"
            " (V.set_choices_handler), or a tensor whose layout only one choice can write.",
        ],
        page=f"/launches/{first.cost.launch}",
        rank=run.rank,
        log=run.log,
        graph=first.cost.graph,
        launch=first.cost.launch,
        kernel=first.cost.kernel,
        source=first.cost.source,
    )  # fmt: skip
