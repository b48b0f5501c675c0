"""The kernels of a run take longer from some step on, and do so until its end. Steps are compared that call the same
generated code with the same sizes and compile nothing; there are eight or more before the change and after it. Of a
later and an earlier step, the later one spends more time in kernels in nine of ten pairs, which is 3.3 standard
deviations or more of the rank test of Mann and Whitney. The medians and the quickest tenths of both differ by a factor
of 1.3 or more, and the medians by 15 % of a later step and 1 ms. The other host work of the steps must not have become
slower to the same degree, because the machine may then have been busy with other programs. The finding names the kernel
with most of the additional time. It is a warning from 30 % on, unless more than half of several kernels became slower,
or the other host work takes 1.5 times as long or more, which the machine may have caused."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate
from math import sqrt
from statistics import median
from typing import NamedTuple

from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.findings.speed.costs import Slowness, is_costly, one_per_cause, severity_of
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.speed.queries.kernel_courses import SiteChange, kernel_courses, site_changes
from stepscope.viewer.speed.queries.runs import run_splits
from stepscope.viewer.speed.queries.splits import step_splits
from stepscope.viewer.speed.queries.verdict import share_text
from stepscope.viewer.speed.rows import RunSplit, StepSplit
from stepscope.viewer.text.formats import format_ns

SUMMARY = "Kernels become slower within the run"

LEAST_STEPS, FACTOR, HOST_PART = 8, 1.3, 0.5
PAIRS, DEVIATIONS = 0.9, 3.3
LEAST_HOST_NS = 20_000
MANY, BUSY_FACTOR = 0.5, 1.5
_OTHERS = "lower clock rate, fewer threads, or other programs that use the same memory"


class _Change(NamedTuple):
    early: list[StepSplit]
    late: list[StepSplit]
    early_ns: float
    late_ns: float
    """Medians of the time of kernels in a step."""
    host_factor: float | None
    """How many times as long the other host work takes; None if there is too little of it."""

    @property
    def step_ns(self) -> int:
        return round(median(split.duration_ns for split in self.late))

    @property
    def factor(self) -> float:
        return self.late_ns / self.early_ns


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding for all logs in which the same kernel becomes slower."""
    return one_per_cause(evidence, _slow(evidence))


def _slow(evidence: Evidence) -> Iterator[Slowness]:
    courses = kernel_courses(evidence.trace)
    for run in run_splits(evidence.trace):
        splits = step_splits(evidence.trace, run.log) if run.log in courses else {}
        found = (_change(course, splits) for course in courses.get(run.log, ()))
        change = max((one for one in found if one), key=lambda one: one.late_ns - one.early_ns, default=None)
        if change is None:
            continue
        early, late = ([split.step for split in side] for side in (change.early, change.late))
        sites = site_changes(evidence.trace, run.log, early, late)
        sites.sort(key=lambda site: site.early_ns / len(early) - site.late_ns / len(late))
        excess = round(change.late_ns - change.early_ns)
        yield Slowness((sites[0].kernel, sites[0].source), run, excess, partial(_finding, run, change, sites))


def _change(course: Sequence[tuple[int, int]], splits: dict[int, StepSplit]) -> _Change | None:
    quiet = [(splits[step], time) for step, time in course if step in splits and not splits[step].of("compile")][1:]
    if len(quiet) < 2 * LEAST_STEPS:
        return None
    times = [time for _, time in quiet]
    at = change_point(times)
    early, late = times[:at], times[at:]
    splits_of = [split for split, _ in quiet]
    change = _Change(splits_of[:at], splits_of[at:], max(1, median(early)), median(late), _host_factor(splits_of, at))
    is_slower = min(change.factor, _quick(late) / max(1, _quick(early))) >= FACTOR
    is_own = change.host_factor is None or change.host_factor - 1 <= HOST_PART * (change.factor - 1)
    is_much = is_costly(change.late_ns - change.early_ns, change.step_ns)
    return change if is_slower and is_much and is_own and is_apart(early, late) else None


def _quick(times: Sequence[int]) -> int:
    """Return a time that a tenth of the steps do not exceed."""
    return sorted(times)[len(times) // 10]


def is_apart(early: Sequence[int], late: Sequence[int]) -> bool:
    """Return whether the late times are larger than the early ones beyond chance, by the ranks of the times."""
    ordered = sorted(early)
    smaller = sum((bisect_left(ordered, time) + bisect_right(ordered, time)) / 2 for time in late)
    pairs = len(early) * len(late)
    deviation = sqrt(pairs * (len(early) + len(late) + 1) / 12)
    return smaller >= PAIRS * pairs and smaller - pairs / 2 >= DEVIATIONS * deviation


def change_point(times: Sequence[int]) -> int:
    """Return where to divide the times, so that the squares of the distances to the means of both parts are least.
    Times of more than four medians count as four."""
    most = 4 * median(times)
    sums = list(accumulate(min(time, most) for time in times))
    count, total = len(times), sums[-1]

    def explained(at: int) -> float:
        before = sums[at - 1]
        return float(before**2 / at + (total - before) ** 2 / (count - at))

    return max(range(LEAST_STEPS, count - LEAST_STEPS + 1), key=explained)


def _host_factor(splits: Sequence[StepSplit], at: int) -> float | None:
    times = [split.of("host") + split.of("between") + split.of("after") for split in splits]
    early, late = median(times[:at]), median(times[at:])
    return late / early if early >= LEAST_HOST_NS else None


def _finding(run: RunSplit, change: _Change, sites: Sequence[SiteChange]) -> Finding:
    excess, first = change.late_ns - change.early_ns, sites[0]
    step = change.late[0].step
    return Finding(
        kind="slower_kernels",
        severity="info" if _may_be_machine(change, sites) else severity_of(excess / change.step_ns),
        title=f"From step {step} on, kernels take {change.factor:.1f} times as long as before:"
        f" {format_ns(round(change.late_ns))} instead of {format_ns(round(change.early_ns))} per step,"
        f" {_most(change, sites)}",
        rule=rule_of(__doc__),
        evidence={
            "share": round(excess / change.step_ns, 4), "part_ns": round(excess), "step_ns": change.step_ns,
            "steps": len(change.late), "earlier_steps": len(change.early), "early_ns": round(change.early_ns),
            "late_ns": round(change.late_ns),
            "host_factor": round(change.host_factor, 2) if change.host_factor is not None else None,
        },
        proof=[
            f"The {len(change.early):,} steps before the change and the {len(change.late):,} after it call the same"
            f" code with the same sizes; the additional time is {share_text(round(excess), change.step_ns)} of a later"
            " step.",
            *_proof(change, sites),
        ],
        page=f"/launches/{first.launch}",
        rank=run.rank,
        log=run.log,
        step=step,
        graph=first.graph,
        launch=first.launch,
        kernel=first.kernel,
        source=first.source,
    )  # fmt: skip


def _most(change: _Change, sites: Sequence[SiteChange]) -> str:
    added = [site.late_ns / len(change.late) - site.early_ns / len(change.early) for site in sites]
    whole = sum(one for one in added if one > 0) or 1
    return f"and {sites[0].kernel} takes {share_text(round(added[0]), round(whole))} of the additional time"


def _factors(change: _Change, sites: Sequence[SiteChange]) -> list[float]:
    """Return how many times as long each kernel takes that took at least a hundredth of the early time."""
    least = 0.01 * sum(site.early_ns for site in sites)
    scale = len(change.early) / len(change.late)
    return [site.late_ns * scale / site.early_ns for site in sites if site.early_ns > least]


def _may_be_machine(change: _Change, sites: Sequence[SiteChange]) -> bool:
    return _many_slower(_factors(change, sites)) or (change.host_factor or 0) >= BUSY_FACTOR


def _many_slower(factors: Sequence[float]) -> bool:
    return len(factors) > 1 and sum(factor >= FACTOR for factor in factors) > MANY * len(factors)


def _host_text(factor: float) -> str:
    busy = ", so that the machine may have been busy" if factor >= BUSY_FACTOR else ""
    return f" The host work between them takes {factor:.1f} times as long{busy}."


def _proof(change: _Change, sites: Sequence[SiteChange]) -> list[str]:
    factors = _factors(change, sites)
    host = _host_text(change.host_factor) if change.host_factor else ""
    slower = sum(factor >= FACTOR for factor in factors)
    if _many_slower(factors):
        those = f"{slower:,} of the" if slower < len(factors) else "All of the"
        return [f"{those} {len(factors):,} kernels became slower, which may be caused by a {_OTHERS}.{host}"]
    if len(factors) > 1:
        if slower > 1:
            return [f"Of the {len(factors):,} kernels of these steps, {slower:,} became slower.{host}"]
        left = len(factors) - slower
        others = (
            f"The {'other kernel' if left == 1 else f'{left:,} other kernels'} of these steps did not become slower"
        )
        return [f"{others}, so the cause lies in what this kernel reads or in how it runs.{host}"]
    return [host.strip()] if host else []
