"""The host cannot keep up, although the program waits for nothing else. On a CPU: a typical step has at least 100
launches of sites whose launches take about as long as calling a kernel does, and these launches with the host work
between launches take at least half of the step, without the recorder's own time between calls. Such launches take less
than 5 us in the median, or less than 20 us if the kernel moves at most 4 KiB per launch. On a GPU: the kernels of a
typical step take at most half of its time on the device, by the calls that were measured, and launching them and the
host work between launches take at least half. Recordings of values are left out, because the recorder reads between the
launches. It needs four typical steps, those of medium duration in which nothing was compiled, and takes the medians of
their times. The finding names the line that calls the graph with most of the launches. It is a warning from 1 ms per
step on, and information below that; under 0.3 ms there is none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from statistics import median

from stepscope.viewer.compiles.queries.cuda_graphs import cuda_graphs
from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.findings.speed.costs import (
    LEAST_NS,
    Slowness,
    amount,
    facts_of,
    one_per_cause,
    steady_runs,
    steady_steps,
    step_page,
    steps_of_runs,
)
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.speed.queries.gaps import own_in_gaps
from stepscope.viewer.speed.queries.graph_places import graph_places
from stepscope.viewer.speed.queries.launch_costs import busiest_graphs, device_time, short_launches
from stepscope.viewer.speed.queries.verdict import share_text
from stepscope.viewer.speed.rows import PartKind, RunSplit
from stepscope.viewer.text.formats import format_ns

SUMMARY = "The host needs most of each step"
TITLE_IS_MEASURED = True

_ADVICE = (
    "Larger tensors make each call worth more; torch._inductor.config.cpp_wrapper = True removes the Python between the"
    " calls."
)
HALF, LEAST_LAUNCHES, LEAST_HOST_NS = 0.5, 100, 300_000


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding for all logs on a CPU, and one for those on a GPU."""
    runs = [run for run in steady_runs(evidence) if not _time(run, "reading")]
    on_device = [run for run in runs if _time(run, "launching")]
    on_cpu = [run for run in runs if not _time(run, "launching")]
    return one_per_cause(evidence, [*_on_device(evidence, on_device), *_on_cpu(evidence, on_cpu)])


def _time(run: RunSplit, kind: PartKind) -> int:
    return sum(part.duration_ns for part in run.parts if part.kind == kind)


def _on_cpu(evidence: Evidence, runs: list[RunSplit]) -> Iterator[Slowness]:
    found = short_launches(evidence.trace, steps_of_runs(evidence, runs))
    for run in runs:
        typical = steady_steps(evidence, run)
        short = [found.get(run.log, {}).get(step, (0, 0)) for step in typical.steps]
        between = typical.times.get("host", [0] * len(short))
        count, total = round(median(count for count, _ in short)), median(total for _, total in short)
        host = round(median(spent + other for (_, spent), other in zip(short, between, strict=True)))
        if count < LEAST_LAUNCHES or host < LEAST_HOST_NS:
            continue
        own = own_in_gaps(evidence.trace, run.log, typical.steps)
        steps = zip(typical.steps, typical.spans, strict=True)
        run = replace(run, typical_ns=round(median(end - start - own.get(step, 0) for step, (start, end) in steps)))
        if host < HALF * run.typical_ns:
            continue
        each = format_ns(round(total / count))
        title = f"Calling kernels takes {amount(host, run.typical_ns)}: {count:,} launches take {each} each"
        yield Slowness("cpu", run, host, partial(_finding, evidence, run, host, title, [_ADVICE], {"launches": count}))


def _on_device(evidence: Evidence, runs: list[RunSplit]) -> Iterator[Slowness]:
    found = device_time(evidence.trace, steps_of_runs(evidence, runs))
    for run in runs:
        host = _time(run, "launching") + _time(run, "host")
        if run.log not in found or host < max(LEAST_HOST_NS, HALF * run.typical_ns):
            continue
        busy = round(found[run.log] / run.typical_steps)
        if busy > HALF * run.typical_ns:
            continue
        idle = share_text(run.typical_ns - busy, run.typical_ns)
        title = (
            f"The program is host-bound: the device is idle for {idle} of a step of {format_ns(run.typical_ns)},"
            f" because launching its kernels takes {format_ns(host)} and running them takes {format_ns(busy)}"
        )
        proof = _cuda_graphs(evidence)
        yield Slowness("gpu", run, host, partial(_finding, evidence, run, host, title, proof, {"device_ns": busy}))


def _cuda_graphs(evidence: Evidence) -> list[str]:
    known = cuda_graphs(evidence.trace)
    if known.skips:
        skip = known.skips[0]
        at = f" at {skip.source.place}" if skip.source else ""
        return [f"CUDA graphs would launch all kernels at once, but they were skipped: {skip.reason}{at}."]
    if known.asked_for == 0:
        return ['torch.compile(..., mode="reduce-overhead") launches all kernels of a graph at once (CUDA graphs).']
    return []


def _finding(
    evidence: Evidence, run: RunSplit, host: int, title: str, proof: list[str], more: dict[str, int]
) -> Finding:
    graph = busiest_graphs(evidence.trace, steps_of_runs(evidence, [run])).get(run.log)
    place = graph_places(evidence.trace, [graph])[graph] if graph is not None else None
    return Finding(
        kind="host_bound",
        severity="warning" if host >= LEAST_NS else "info",
        title=title,
        rule=rule_of(__doc__),
        evidence={**facts_of(run, host), **more},
        proof=proof,
        page=step_page(evidence, run),
        rank=run.rank,
        log=run.log,
        graph=graph,
        source=place.source if place else None,
    )
