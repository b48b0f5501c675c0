"""One rank of a run needs more time per step than the others for the same part of it: its kernels, host work between
launches, a graph break, waiting for data or other work between the steps; or else, on a CPU, the time for which its
thread computes outside of the calls of compiled graphs. In three quarters of its typical steps this part takes at least
1.3 times as long as in three quarters of those of the other ranks, and the difference of the medians is at least 15 %
of its step and 1 ms. The other ranks then wait for it in the next collective, so that their steps take as long as its
own; if they take less than five sixths of that, the ranks do not wait for each other and there is no finding. Kernels
are left out if compiled graphs contain collectives, because waiting in them is time of kernels. Typical steps are those
of medium duration in which nothing was compiled; each rank needs four. There is one finding per run, about the largest
difference; it is a warning. It names where the rank spends this part: the kernel whose time differs most from that of
the other ranks, the line of the graph break, that which waits for data, or the calls before and after its work, with
the line of the program in which, or in Python code up to which, at least half of the samples of this time are."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median, quantiles
from typing import NamedTuple

from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.findings.speed.costs import (
    facts_of,
    is_costly,
    steady_runs,
    steady_steps,
    step_page,
    steps_of_runs,
    time_of,
)
from stepscope.viewer.findings.speed.hot_lines import mostly, samples_text
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.speed.queries.data_waits import longest_waits
from stepscope.viewer.speed.queries.gap_lines import HotLine, hot_line
from stepscope.viewer.speed.queries.gaps import computed_in_gaps, costs_of_gaps
from stepscope.viewer.speed.queries.graph_places import graph_places
from stepscope.viewer.speed.queries.launch_costs import SiteCost, has_collectives, kernel_costs
from stepscope.viewer.speed.queries.splits import step_gaps
from stepscope.viewer.speed.queries.verdict import share_text
from stepscope.viewer.speed.rows import PART_NAMES, PartKind, RunSplit
from stepscope.viewer.text.formats import format_ns

SUMMARY = "One rank is slower than the others"
TITLE_IS_MEASURED = True

FACTOR, TOGETHER = 1.3, 1.2
MOST_APART = 3
"""Number of ranks, those that take longest, that are compared with all others."""
_PARTS: dict[PartKind, str] = {
    "kernels": "in kernels",
    "host": "on host work between launches",
    "break": "at graph breaks",
    "data": "waiting for data",
    "outside": "between the steps",
}


class _Excess(NamedTuple):
    run: RunSplit
    kind: PartKind | None
    """None for computing outside of compiled code."""
    own_ns: int
    others_ns: int

    @property
    def excess_ns(self) -> int:
        return self.own_ns - self.others_ns


def find(evidence: Evidence) -> list[Timed]:
    """Return at most one finding."""
    runs = [run for run in steady_runs(evidence) if run.rank is not None]
    if len({run.rank for run in runs}) < 2 or len(runs) != len({run.rank for run in runs}):
        return []
    found = [*_of_parts(evidence, runs)] or [*_of_computing(evidence, runs)]
    most = max(found, key=lambda one: one.excess_ns, default=None)
    return [] if most is None else [(time_of(evidence, most.run.log), _finding(evidence, most, runs))]


def _of_parts(evidence: Evidence, runs: list[RunSplit]) -> Iterator[_Excess]:
    steps = {run.log: steady_steps(evidence, run) for run in runs}
    for kind in _PARTS:
        if kind != "kernels" or not has_collectives(evidence.trace):
            times = {log: typical.times.get(kind, [0] * len(typical.steps)) for log, typical in steps.items()}
            yield from _apart(kind, times, runs)


def _of_computing(evidence: Evidence, runs: list[RunSplit]) -> Iterator[_Excess]:
    """Yield ranks that compute longer outside of calls; on a GPU a thread that waits for the device computes, too."""
    if not any(run.on_device for run in runs):
        gaps = computed_in_gaps(evidence.trace, steps_of_runs(evidence, runs))
        if all(run.log in gaps for run in runs):
            times = {log: [sum(times) for times in zip(*of.values(), strict=True)] for log, of in gaps.items()}
            yield from _apart(None, times, runs)


def _apart(kind: PartKind | None, times: dict[int, list[int]], runs: list[RunSplit]) -> Iterator[_Excess]:
    """Yield the ranks that take longer than all others, by the times of their typical steps."""
    for run in sorted(runs, key=lambda run: median(times[run.log]), reverse=True)[:MOST_APART]:
        own, others = times[run.log], [time for log, of in times.items() if log != run.log for time in of]
        excess = _Excess(run, kind, round(median(own)), round(median(others)))
        is_apart = quantiles(own)[0] >= FACTOR * quantiles(others)[2]
        if is_apart and is_costly(excess.excess_ns, run.typical_ns) and _is_waited_for(run, runs):
            yield excess


def _is_waited_for(run: RunSplit, runs: list[RunSplit]) -> bool:
    """Return whether the steps of the other ranks take about as long as those of `run`."""
    return run.typical_ns <= TOGETHER * median(one.typical_ns for one in runs if one.log != run.log)


class _Place(NamedTuple):
    """Where a rank spends its additional time."""

    where: str = ""
    source: SourceLine | None = None
    kernel: str | None = None
    launch: int | None = None
    hot: HotLine | None = None


def _place(evidence: Evidence, most: _Excess, runs: list[RunSplit]) -> _Place:
    run, typical = most.run, steady_steps(evidence, most.run)
    if most.kind == "kernels":
        return _kernel(evidence, run, runs)
    if most.kind == "break":
        line = max((part for part in run.parts if part.kind == "break"), key=lambda part: part.duration_ns)
        return _Place(f", most of it in {line.place}", line.source)
    if most.kind == "data":
        waits = longest_waits(evidence.trace, run.log, typical.spans)
        return _Place("", waits.source if waits else None)
    if most.kind == "outside":
        costs = costs_of_gaps(evidence.trace, run.log, typical.steps)
        longest = next((cost for cost in costs if cost.kind == "outside"), None)
        if longest is not None:
            near = longest.after or longest.before
            hot = hot_line(evidence.trace, run.log, longest.spans)
            return _between(longest.where, near.source if near else None, hot)
    return _computed(evidence, run, runs) if most.kind is None else _Place()


def _between(where: str, source: SourceLine | None, hot: HotLine | None) -> _Place:
    return _Place(f", most of it {where}{mostly(hot)}", hot.innermost if hot else source, hot=hot)


def _computed(evidence: Evidence, run: RunSplit, runs: list[RunSplit]) -> _Place:
    gaps = computed_in_gaps(evidence.trace, steps_of_runs(evidence, runs))
    places = graph_places(evidence.trace, {graph for of in gaps.values() for pair in of for graph in pair})
    texts = {graph: place.text for graph, place in places.items()}
    times = {log: {(texts[one], texts[other]): median(of[one, other]) for one, other in of} for log, of in gaps.items()}

    def excess(pair: tuple[int, int]) -> float:
        key = texts[pair[0]], texts[pair[1]]
        return times[run.log][key] - median(of.get(key, 0) for log, of in times.items() if log != run.log)

    before, after = max(gaps[run.log], key=excess)
    apart = step_gaps(evidence.trace, run.log, steady_steps(evidence, run).steps)
    spans = [gap.span for gap in apart if (gap.before, gap.after) == (before, after)]
    hot = hot_line(evidence.trace, run.log, spans)
    return _between(f"between {texts[before]} and the next call, {texts[after]}", places[before].source, hot)


def _kernel(evidence: Evidence, run: RunSplit, runs: list[RunSplit]) -> _Place:
    steps = steps_of_runs(evidence, runs)
    costs = kernel_costs(evidence.trace, steps)
    means = {
        one.log: {(site.kernel, site.source): site.duration_ns / len(steps[one.log]) for site in costs.get(one.log, ())}
        for one in runs
    }

    def excess(site: SiteCost) -> float:
        key = site.kernel, site.source
        return means[run.log][key] - median(times.get(key, 0.0) for log, times in means.items() if log != run.log)

    first = max(costs.get(run.log, ()), key=excess, default=None)
    return _Place(f", most of it in {first.kernel}", first.source, first.kernel, first.launch) if first else _Place()


def _finding(evidence: Evidence, most: _Excess, runs: list[RunSplit]) -> Finding:
    run, place = most.run, _place(evidence, most, runs)
    how = _PARTS[most.kind] if most.kind else "computing outside of compiled code"
    others = "the median of the other ranks is" if len(runs) > 2 else "the other rank spends"
    return Finding(
        kind="slow_rank",
        severity="warning",
        title=f"Rank {run.rank} spends {format_ns(most.own_ns)} per step {how}{place.where},"
        f" and {others} {format_ns(most.others_ns)}: the difference is {share_text(most.excess_ns, run.typical_ns)}"
        f" of a step ({format_ns(run.typical_ns)})",
        rule=rule_of(__doc__),
        evidence={**facts_of(run, most.excess_ns), "part": PART_NAMES[most.kind] if most.kind else how,
                  "own_ns": most.own_ns, "others_ns": most.others_ns, "ranks": len(runs)},
        proof=samples_text(place.hot),
        page=f"/launches/{place.launch}" if place.launch is not None else step_page(evidence, run),
        rank=run.rank,
        log=run.log,
        launch=place.launch,
        kernel=place.kernel,
        source=place.source,
    )  # fmt: skip
