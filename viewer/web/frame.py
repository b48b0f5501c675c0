"""Builds the frame of every page: facts of the run, findings, damage and the cost of recording."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from stepscope.tracer._version import __version__
from stepscope.viewer.overview.queries.overview import first_page
from stepscope.viewer.overview.queries.recorder_cost import RecorderCost, recorder_cost
from stepscope.viewer.overview.rows import Counts, Overview, RunRow, Severity
from stepscope.viewer.store.trace import Trace

MOST_FINDING_LINKS = 200


@dataclass(frozen=True)
class FindingLink:
    title: str
    severity: Severity
    page: str
    step: int | None = None
    log: int | None = None
    graph: int | None = None
    kernel: str | None = None
    buffer: str | None = None
    compile_ids: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class PageFrame:
    """The data of the frame around every page: facts of the run above, damage and cost below."""

    runs: list[RunRow]
    facts: list[str]
    skipped: int
    not_recorded: int
    recorder_cost: RecorderCost | None
    index_bytes: int
    version: str
    counts: Counts
    findings: list[FindingLink]
    """Findings in the order of the overview, between which the keys [ and ] move."""
    following: bool = False
    """Whether the logs may grow while their pages are open."""


def frame_of(trace: Trace, following: bool) -> PageFrame:
    """Return the frame of a trace, whose logs may grow if `following`."""
    return replace(frame(first_page(trace)), following=following)


def frame(overview: Overview) -> PageFrame:
    return PageFrame(
        runs=overview.runs,
        facts=run_facts(overview),
        skipped=sum(overview.skipped.values()),
        not_recorded=len(overview.not_recorded),
        recorder_cost=recorder_cost(overview),
        index_bytes=overview.index_bytes,
        version=__version__,
        counts=overview.counts,
        findings=[
            FindingLink(
                *(row.title, row.severity, row.page, row.step, row.log),
                *(row.graph, row.kernel, row.buffer, row.compile_ids),
            )
            for row in overview.findings[:MOST_FINDING_LINKS]
        ],
    )


def run_facts(overview: Overview) -> list[str]:
    """Return the facts of the run for one line: script, ranks, torch, devices, steps and level."""
    runs = overview.runs
    if not runs:
        return []
    first = next((run for run in runs if run.remark is None), runs[0])
    facts = [script_name(first)]
    if len(runs) > 1:
        facts.append(f"{len(runs)} logs")
    elif first.rank is not None:
        facts.append(f"rank {first.rank}" + (f"/{first.world_size}" if first.world_size else ""))
    if first.torch:
        facts.append(f"torch {first.torch}")
    facts += first.devices[:2]
    if overview.counts.steps:
        facts.append(f"{overview.counts.steps:,} step{'s' if overview.counts.steps != 1 else ''}")
    facts.append(first.remark or f"level {first.level}")
    return facts


def script_name(run: RunRow) -> str:
    """Return the program, such as ``train.py`` or ``-m package.module``, or the name of a log that does not name it."""
    argv = run.argv
    if "-m" in argv[:-1]:
        return f"-m {argv[argv.index('-m') + 1]}"
    script = next((part for part in argv if part.endswith(".py")), None) or (argv[0] if argv else run.path)
    return script.replace("\\", "/").rsplit("/", 1)[-1]


def rank_of(runs: list[RunRow], log: int) -> str:
    rank = next((run.rank for run in runs if run.log == log), None)
    return f"log {log}" if rank is None else str(rank)


def run_name(runs: list[RunRow], log: int) -> str:
    """Return ``rank 3``, with the log if several logs have that rank, or only the log if it has no rank."""
    rank = next((run.rank for run in runs if run.log == log), None)
    if rank is None:
        return f"log {log}"
    return f"rank {rank}" if sum(run.rank == rank for run in runs) == 1 else f"rank {rank}, log {log}"
