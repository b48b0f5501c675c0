"""Provides what findings about kernels of one kind share that together take much of each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from stepscope.viewer.findings.evidence import Evidence, Timed
from stepscope.viewer.findings.speed.costs import Slowness, facts_of, is_costly, one_per_cause, steps_of_runs
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.speed.queries.launch_costs import SiteCost
from stepscope.viewer.speed.rows import RunSplit
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import plural


class CostlyKernels(NamedTuple):
    """The kernels of one log; there is at least one."""

    run: RunSplit
    steps: int
    """The number of typical steps."""
    sites: list[SiteCost]
    """The launch sites, that which takes most first."""
    part_ns: int
    """The time that they take of a typical step."""

    @property
    def named(self) -> str:
        """Return text like ``triton_poi_fused_clone_0 and 2 other kernels``."""
        others = f" and {plural(len(self.sites) - 1, 'other kernel')}" if len(self.sites) > 1 else ""
        return f"{self.sites[0].kernel}{others}"

    def fields(self) -> dict[str, Any]:
        """Return the fields of a finding that say which kernels they are, and where the first of them is."""
        first = self.sites[0]
        kernels = [
            {"kernel": site.kernel, "part_ns": round(site.duration_ns / self.steps), "launches": site.launches}
            for site in self.sites
        ]
        return {
            "evidence": {**facts_of(self.run, self.part_ns), "kernels": kernels},
            "page": f"/launches/{first.launch}",
            "rank": self.run.rank,
            "log": self.run.log,
            "graph": first.graph,
            "launch": first.launch,
            "kernel": first.kernel,
            "source": first.source,
        }


def find_costly(
    evidence: Evidence,
    runs: Sequence[RunSplit],
    search: Callable[[Trace, dict[int, list[int]]], Mapping[int, list[SiteCost]]],
    build: Callable[[CostlyKernels], Finding],
) -> list[Timed]:
    """Return one finding for all logs of `runs` in which the same kernel takes most; `search` finds those of a log."""
    return one_per_cause(evidence, _costly(evidence, runs, search, build))


def _costly(
    evidence: Evidence,
    runs: Sequence[RunSplit],
    search: Callable[[Trace, dict[int, list[int]]], Mapping[int, list[SiteCost]]],
    build: Callable[[CostlyKernels], Finding],
) -> Iterator[Slowness]:
    steps = steps_of_runs(evidence, runs)
    found = search(evidence.trace, steps)
    for run in runs:
        sites = found.get(run.log, [])
        spent = round(sum(site.duration_ns for site in sites) / len(steps[run.log]))
        if sites and is_costly(spent, run.typical_ns):
            kernels = CostlyKernels(run, len(steps[run.log]), sites, spent)
            yield Slowness((sites[0].kernel, sites[0].source), run, spent, partial(build, kernels))
