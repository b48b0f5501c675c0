"""From the address / to the context of the first page, and what stands around every page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepscope.tracer._version import __version__
from stepscope.viewer.memory.mini_curves import mini_curves
from stepscope.viewer.overview.contexts import FindingLink, Frame, MiniCurve, OverviewPage
from stepscope.viewer.overview.queries.overview import first_page
from stepscope.viewer.overview.recorder_cost import recorder_cost
from stepscope.viewer.web.addresses import Page, Request
from stepscope.viewer.web.parts import part

if TYPE_CHECKING:
    from stepscope.viewer.overview.rows import Overview, RunRow
    from stepscope.viewer.store.trace import Trace

MOST_FINDING_LINKS = 200
MOST_MINI_CURVES = 6
MOST_FINDINGS = 50


def frame(overview: Overview) -> Frame:
    return Frame(
        runs=overview.runs,
        facts=run_facts(overview),
        skipped=sum(overview.skipped.values()),
        not_recorded=len(overview.not_recorded),
        recorder_cost=recorder_cost(overview),
        index_bytes=overview.index_bytes,
        version=__version__,
        counts=overview.counts,
        findings=[FindingLink(row.title, row.severity, row.page) for row in overview.findings[:MOST_FINDING_LINKS]],
    )


def run_facts(overview: Overview) -> list[str]:
    """The run in a line: what, which ranks, with what torch, where, how much."""
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
    """What ran: ``train.py``, ``-m package.module``; for a log that does not say, the log's own name."""
    argv = run.argv
    if "-m" in argv[:-1]:
        return f"-m {argv[argv.index('-m') + 1]}"
    script = next((part for part in argv if part.endswith(".py")), None) or (argv[0] if argv else run.path)
    return script.replace("\\", "/").rsplit("/", 1)[-1]


def overview_page(trace: Trace, request: Request) -> OverviewPage:
    found = first_page(trace)
    shown = len(found.findings) if request.text("findings") == "all" else MOST_FINDINGS
    nothing: tuple[list[MiniCurve], int] = ([], 0)
    return OverviewPage(found, *part("Memory", nothing, mini_curves, trace, MOST_MINI_CURVES), shown)


PAGES = (Page("/", "overview/page.html", "Overview", OverviewPage, overview_page, ("findings",)),)
