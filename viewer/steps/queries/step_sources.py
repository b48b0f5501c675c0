"""Describes how the steps of a trace were found, and whether they look like the iterations of a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from stepscope.viewer.overview.rows import StepRow

LEAST_STEPS = 8
"""Minimum number of steps that are compared."""
MANY_STEPS = 100
_ODD_SHARE, _ODD_FACTOR = 0.25, 3
_ADVICE = "If they are not the iterations of the program, call stepscope.step() at the end of each iteration."
_WORDS = {
    "user": "by calls of stepscope.step()",
    "backward": "by the ends of backward passes",
    "call": "by calls of the same function",
    "generate": "by whole calls of generate",
}


@dataclass(frozen=True)
class StepSources:
    """Sentences about the steps of a trace."""

    found_by: str | None
    """None if there are no steps or the log does not say."""
    doubt: str | None
    """Why they may not be iterations, and what helps; None if nothing suggests it."""
    data_workers: str | None
    """None if no log belongs to a worker of a DataLoader."""


def step_sources(steps: Sequence[StepRow]) -> StepSources:
    own = [step for step in steps if step.kind != "data"]
    fed = len(steps) - len(own)
    workers = (
        f"{fed:,} worker{'s' if fed > 1 else ''} of a DataLoader called "
        "compiled functions; these calls are not counted as steps."
    )
    return StepSources(_found_by(own), _doubt(own), workers if fed else None)


def _found_by(steps: Sequence[StepRow]) -> str | None:
    counts = Counter(_source(step) for step in steps if step.by is not None)
    if not counts:
        return None
    parts = [source if len(counts) == 1 else f"{source} ({count:,})" for source, count in counts.most_common()]
    return f"Steps were found {_listed(parts)}{_in_logs(steps)}."


def _in_logs(steps: Sequence[StepRow]) -> str:
    """Return text like ``, 20 in each of 2 logs``, or "" if all steps are of one log."""
    counts = Counter(step.log for step in steps).values()
    if len(counts) < 2:
        return ""
    least, most = min(counts), max(counts)
    return f", {least:,}{f' to {most:,}' if most > least else ''} in each of {len(counts):,} logs"


def _source(step: StepRow) -> str:
    if step.by != "optimizer":
        return _WORDS.get(step.by or "", f"by {step.by}")
    names = (step.optimizers or "").split(", ") if step.optimizers else []
    if not names:
        return "by an optimizer"
    return f"by the optimizer{'s' if len(names) > 1 else ''} {_listed(names)}"


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]


def _doubt(steps: Sequence[StepRow]) -> str | None:
    guessed = [step for step in steps if step.by in ("call", "optimizer", "backward")]
    why = _few_launches(guessed) or _uneven(guessed)
    return f"{why} {_ADVICE}" if why else None


def _few_launches(steps: Sequence[StepRow]) -> str | None:
    of_calls = [step for step in steps if step.by == "call"]
    small = sum(step.launches <= 1 for step in of_calls)
    if len(of_calls) < MANY_STEPS or small < (1 - _ODD_SHARE) * len(of_calls):
        return None
    return f"{small:,} of {len(steps):,} steps are a single call with at most one launch."


def _uneven(steps: Sequence[StepRow]) -> str | None:
    """Return a sentence if steps of one kind call very different numbers of graphs."""
    for kind in ("train", "inference"):
        calls = [step.calls for step in steps if step.kind == kind]
        if len(calls) < LEAST_STEPS:
            continue
        usual = median(calls)
        odd = sum(count > _ODD_FACTOR * usual or _ODD_FACTOR * count < usual for count in calls)
        if odd > _ODD_SHARE * len(calls):
            return f"Each {kind} step calls between {min(calls):,} and {max(calls):,} graphs."
    return None
