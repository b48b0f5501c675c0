"""A kernel takes longer for a size than for a larger one. Launches of one site are compared that differ in the sizes
which the generated code takes as numbers, in steps in which nothing was compiled. Each size has six or more launches,
and the two sizes take turns six times or more, so that a machine that is busy for a while is no cause. At the slow size
no number is larger and no more bytes are read or written, but nine of ten launches take at least 1.5 times as long as
the median at the other size. What this costs is at least 15 % of these steps and 1 ms per step. The finding names the
kernel, and both sizes; it is a warning from 30 % on. Kernels that users wrote and collectives do not count, as their
time depends on data or on other ranks, and on a GPU only launches whose time on the device was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.findings.speed.costs import LEAST_STEPS, Slowness, is_costly, one_per_cause, severity_of
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.speed.queries.runs import run_splits
from stepscope.viewer.speed.queries.shape_times import (
    ShapeSite,
    ShapeTime,
    moves_no_more,
    shape_site,
    shape_times,
    turns,
)
from stepscope.viewer.speed.queries.sizes import size_courses
from stepscope.viewer.speed.queries.splits import step_splits
from stepscope.viewer.speed.rows import RunSplit
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import format_ns, plural, shape_text
from stepscope.viewer.values.queries.tunings import tunings

SUMMARY = "A kernel is slow at one size"

LEAST_LAUNCHES, LEAST_TURNS, FACTOR = 6, 6, 1.5


class _Pair(NamedTuple):
    """A size at which a site is slow, and a larger one at which it is not."""

    slow: ShapeTime
    fast: ShapeTime

    @property
    def lost_ns(self) -> int:
        return round(self.slow.spent_ns * (1 - self.fast.usual_ns / self.slow.usual_ns))


class _Steps(NamedTuple):
    """The steps in which nothing was compiled."""

    numbers: list[int]
    whole_ns: int


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding for all logs in which the same kernel loses most."""
    return one_per_cause(evidence, _slow(evidence))


def _slow(evidence: Evidence) -> Iterator[Slowness]:
    trace = evidence.trace
    runs = {run.log: run for run in run_splits(trace) if run.steps > LEAST_STEPS}
    for log in size_courses(trace, list(runs)):
        quiet = [split for split in step_splits(trace, log).values() if not split.of("compile")]
        steps = _Steps([split.step for split in quiet], sum(split.duration_ns for split in quiet))
        found = [pairs for pairs in _of_sites(trace, log, steps) if _is_costly(pairs, steps)]
        if found:
            pairs = max(found, key=_lost)
            site = shape_site(trace, pairs[0].slow.site)
            part_ns = round(_lost(pairs) / len(steps.numbers))
            build = partial(_finding, trace, runs[log], steps, site, pairs)
            yield Slowness((site.kernel, site.source), runs[log], part_ns, build)


def _of_sites(trace: Trace, log: int, steps: _Steps) -> Iterator[list[_Pair]]:
    """Yield the pairs of each site that is slow at some sizes, the costliest first."""
    for times in shape_times(trace, log, steps.numbers, LEAST_LAUNCHES).values():
        pairs = sorted(filter(None, (_pair(slow, times) for slow in times)), key=lambda pair: -pair.lost_ns)
        if _is_costly(pairs, steps):  # of the others, no statement needs to ask
            proven = [pair for pair in pairs if _is_proven(trace, log, steps, pair)]
            if proven:
                yield proven


def _pair(slow: ShapeTime, times: Sequence[ShapeTime]) -> _Pair | None:
    """Return the size together with the fastest of the larger ones at which launches take much less."""
    larger = [one for one in times if one is not slow and _is_within(slow.sizes, one.sizes)]
    fast = min(larger, key=lambda one: one.usual_ns, default=None)
    return _Pair(slow, fast) if fast is not None and slow.quick_ns >= FACTOR * fast.usual_ns else None


def _is_within(small: Mapping[str, int], large: Mapping[str, int]) -> bool:
    return small.keys() == large.keys() and all(small[symbol] <= large[symbol] for symbol in small)


def _is_proven(trace: Trace, log: int, steps: _Steps, pair: _Pair) -> bool:
    return turns(trace, log, steps.numbers, *pair) >= LEAST_TURNS and moves_no_more(trace, *pair)


def _lost(pairs: Sequence[_Pair]) -> int:
    return sum(pair.lost_ns for pair in pairs)


def _is_costly(pairs: Sequence[_Pair], steps: _Steps) -> bool:
    return bool(pairs) and is_costly(_lost(pairs) / len(steps.numbers), steps.whole_ns / len(steps.numbers))


def _finding(trace: Trace, run: RunSplit, steps: _Steps, site: ShapeSite, pairs: Sequence[_Pair]) -> Finding:
    slow, fast = pairs[0]
    share = _lost(pairs) / steps.whole_ns
    courses = size_courses(trace, [run.log]).get(run.log, ())
    names = {course.symbol: course.name for course in courses if course.graph == site.graph}
    differing = [symbol for symbol, size in slow.sizes.items() if fast.sizes[symbol] != size]
    texts = [
        " and ".join(f"{names.get(symbol, symbol)} = {one.sizes[symbol]:,}" for symbol in differing) for one in pairs[0]
    ]
    others = [f"The kernel is slow at {plural(len(pairs) - 1, 'other size')}, too."] if len(pairs) > 1 else []
    return Finding(
        kind="slow_shape",
        severity=severity_of(share),
        title=f"{site.kernel} takes {slow.usual_ns / fast.usual_ns:.1f} times as long for {texts[0]} as for {texts[1]}:"
        f" {format_ns(slow.usual_ns)} instead of {format_ns(fast.usual_ns)} per launch",
        rule=rule_of(__doc__),
        evidence={
            "share": round(share, 4), "part_ns": round(_lost(pairs) / len(steps.numbers)),
            "step_ns": round(steps.whole_ns / len(steps.numbers)), "steps": len(steps.numbers),
            "slow_sizes": slow.sizes, "fast_sizes": fast.sizes, "slow_ns": slow.usual_ns, "fast_ns": fast.usual_ns,
            "launches": slow.launches, "fast_launches": fast.launches,
        },
        proof=[
            f"This costs {100 * share:.0f} % of the time of {plural(len(steps.numbers), 'step')}, with"
            f" {plural(slow.launches, 'launch')} at this size and {fast.launches:,} at the other.",
            *others,
            *_tuned(trace, slow.site),
            f"With {texts[1]} it reads and writes no fewer bytes and is faster: choose such sizes, or pad to them where"
            " the result allows it.",
        ],
        page=f"/launches/{slow.launch}",
        rank=run.rank,
        log=run.log,
        graph=site.graph,
        launch=slow.launch,
        kernel=site.kernel,
        source=site.source,
    )  # fmt: skip


def _tuned(trace: Trace, site: int) -> list[str]:
    """Say with which sizes the autotuner measured the kernel, if it did."""
    found = [one for one in tunings(trace, [site]) if one.dynamic]
    sizes = [" and ".join(shape_text(each.size) for each in one.inputs) for one in found]
    return [f"Inductor's autotuner chose {found[0].choice.kernel} by measurements with {sizes[0]}."] if found else []
