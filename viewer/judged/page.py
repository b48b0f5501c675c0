"""Builds the context of the page of the judge."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from stepscope.viewer.judged.queries.judged import judged_count
from stepscope.viewer.judged.queries.verdicts import judged_launches, judged_steps
from stepscope.viewer.judged.rows import VERDICTS, JudgedCount, JudgedLaunch, JudgedStep
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web.addresses import NotThere, Page, Request
from stepscope.viewer.web.parameters import LOG, STEP


@dataclass(frozen=True)
class NotJudged:
    """A kernel whose launches were not judged, for one reason."""

    kernel: str
    reason: str
    launches: int


@dataclass(frozen=True)
class JudgePage:
    count: JudgedCount | None
    """How many launches of all steps were judged; None if no step was."""
    steps: list[JudgedStep]
    shown: JudgedStep | None
    """The step whose launches are listed."""
    launches: list[JudgedLaunch]
    """The launches of that step, those with the worst verdict first, each kind in their order."""
    not_judged: list[NotJudged]


def judge_page(trace: Trace, request: Request) -> JudgePage:
    steps = judged_steps(trace)
    shown = _shown(steps, request.optional_id("log"), request.optional_id("step"))
    launches = judged_launches(trace, shown.log, shown.step) if shown is not None else []
    listed = sorted(launches, key=lambda one: VERDICTS.index(one.verdict))
    return JudgePage(judged_count(trace), steps, shown, listed, _not_judged(launches))


def _shown(steps: list[JudgedStep], log: int | None, step: int | None) -> JudgedStep | None:
    """Return the step that the address names, else the first step with a wrong launch, else the first one."""
    if log is None and step is None:
        return next((one for one in steps if one.wrong or one.suspect), steps[0] if steps else None)
    for one in steps:
        if log in (None, one.log) and step in (None, one.step):
            return one
    raise NotThere("This step was not judged.")


def _not_judged(launches: list[JudgedLaunch]) -> list[NotJudged]:
    counts: Counter[tuple[str, str]] = Counter()
    for one in launches:
        if one.verdict == "unjudged":
            counts[one.kernel, next((of.reason for of in one.buffers if of.reason), "the reason is unknown")] += 1
    return [NotJudged(kernel, reason, number) for (kernel, reason), number in counts.most_common()]


ROUTES = (Page("/judge", "judged/page.html", "Judge", JudgePage, judge_page, (LOG, STEP)),)
