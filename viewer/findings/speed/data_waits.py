"""The program waits at least 15 % and 1 ms of each typical step for the next batch of a `torch.utils.data.DataLoader`.
Typical steps are those of medium duration in which nothing was compiled; there must be four. The finding is a warning
from 30 % on. If the loader has no worker processes, the program itself makes the batch in this time; the finding then
names the line in which at least half of the samples of this time are, if the recorder took eight or more, or says that
the time passes in Python code up to this line, if the thread could mostly not be seen before. Where most of this time
goes to workers that are started again, the finding is of the kind restarted_workers instead. Waits of threads other
than that in which a step begins do not count: they fetch batches while graphs run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.findings.speed.costs import (
    Slowness,
    amount,
    facts_of,
    is_costly,
    one_per_cause,
    severity_of,
    steady_runs,
    steady_steps,
    step_page,
)
from stepscope.viewer.findings.speed.hot_lines import mostly, samples_text
from stepscope.viewer.findings.speed.restarted_workers import costly_restarts
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.speed.queries.data_waits import DataWaitRow, longest_waits, waits_of
from stepscope.viewer.speed.queries.gap_lines import HotLine, hot_line
from stepscope.viewer.speed.rows import RunSplit

SUMMARY = "The program waits for data"
TITLE_IS_MEASURED = True


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding for all logs that wait at the same place."""
    return one_per_cause(evidence, _slow(evidence))


def _slow(evidence: Evidence) -> Iterator[Slowness]:
    restarted = {one.log for one in costly_restarts(evidence)}
    for run in steady_runs(evidence):
        waited = sum(part.duration_ns for part in run.parts if part.kind == "data")
        if is_costly(waited, run.typical_ns):
            most = longest_waits(evidence.trace, run.log, steady_steps(evidence, run).spans)
            if most is not None and not (most.are_of_restarts and run.log in restarted):
                yield Slowness(most, run, waited, partial(_finding, evidence, run, waited, most))


def _finding(evidence: Evidence, run: RunSplit, waited: int, most: DataWaitRow) -> Finding:
    hot = _line_of_batches(evidence, run, most)
    return Finding(
        kind="data_waits",
        severity=severity_of(waited / run.typical_ns),
        title=f"Waiting for the next batch of a DataLoader takes {amount(waited, run.typical_ns)}{mostly(hot)}",
        rule=rule_of(__doc__),
        evidence={**facts_of(run, waited), "workers": most.workers},
        proof=_proof(most) + samples_text(hot),
        page=step_page(evidence, run),
        rank=run.rank,
        log=run.log,
        source=hot.innermost if hot else most.source,
    )


def _line_of_batches(evidence: Evidence, run: RunSplit, most: DataWaitRow) -> HotLine | None:
    """Return the line that takes most of the time if the program itself makes the batches, below the line that asks
    for them."""
    if most.workers != 0:
        return None
    spans = waits_of(evidence.trace, run.log, steady_steps(evidence, run).spans)
    hot = hot_line(evidence.trace, run.log, spans, waiting=True)
    return hot if hot is not None and hot.callers else None


def _proof(most: DataWaitRow) -> list[str]:
    if most.workers == 0:
        return ["The loader has no worker processes: DataLoader(..., num_workers=4) makes batches while graphs run."]
    if most.workers == 1:
        return ["The loader has one worker process, which does not keep up."]
    return [f"The loader has {most.workers:,} worker processes, which do not keep up."] if most.workers else []
