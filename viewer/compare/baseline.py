"""Finds what became worse since a baseline: new findings, a higher peak of memory, and significant slowdowns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from stepscope.viewer.compare.queries.pairs import match, match_logs
from stepscope.viewer.compare.queries.times import compare_times
from stepscope.viewer.compare.rows import Wanted
from stepscope.viewer.compare.time_rows import Times
from stepscope.viewer.compare.times_text import change_text, steps_sentence
from stepscope.viewer.memory.queries.run import run_peaks
from stepscope.viewer.memory.rows import RunPeak
from stepscope.viewer.overview.queries.runs import list_runs
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import basename, format_bytes

LEAST_PEAK_FACTOR, LEAST_PEAK_BYTES = 1.05, 1_000_000
"""A peak is higher if it is so by this factor and by these bytes."""
LEAST_PART = 0.01
"""Minimum part of the time of the baseline's kernels by which a kernel must be slower."""
_SEVERITIES = ("info", "warning", "critical")
_LAST_NUMBER = re.compile(r"_\d+$")


@dataclass(frozen=True)
class Regression:
    """What became worse."""

    kind: Literal["finding", "memory", "step time", "kernel time"]
    sentence: str
    finding: str | None = None
    """Kind of the finding; null for others."""
    factor: float | None = None
    """The new figure divided by that of the baseline; null for a finding."""


@dataclass(frozen=True)
class Against:
    """The regressions of a trace, and what could not be compared."""

    regressions: list[Regression]
    notes: list[str]


def against(trace: Trace, base: Trace, hits: Sequence[Finding], known: Iterable[Finding]) -> Against:
    """Compare a trace with its baseline. `hits` are the findings that count, `known` those of the baseline."""
    regressions, notes = list(_new_findings(hits, known)), []
    for found, note in (_memory(trace, base), _times(trace, base)):
        regressions += found
        notes += note
    return Against(regressions, notes)


def _new_findings(hits: Sequence[Finding], known: Iterable[Finding]) -> Iterator[Regression]:
    """Yield findings that the baseline lacks at their place, or has with a lower severity.

    The place of a finding is the text of its line, or the kernel without its number, so that it may move."""
    left = Counter[tuple[Hashable, int]]()
    for finding in known:
        left[_place(finding), _SEVERITIES.index(finding.severity)] += 1
    for finding in hits:
        place, severity = _place(finding), _SEVERITIES.index(finding.severity)
        at_least = next((one for one in range(severity, len(_SEVERITIES)) if left[place, one]), None)
        below = next((one for one in range(severity) if left[place, one]), None)
        if at_least is not None:
            left[place, at_least] -= 1
        elif below is not None:
            left[place, below] -= 1
            was = f"The finding {finding.kind} was {_SEVERITIES[below]} and is {finding.severity} now"
            yield Regression("finding", f"{was}: {_ended(finding.title)}", finding.kind)
        else:
            new = f"The finding {finding.kind} ({finding.severity}) is new"
            yield Regression("finding", f"{new}: {_ended(finding.title)}", finding.kind)


def _place(finding: Finding) -> Hashable:
    if finding.source is not None and finding.source.code:
        return finding.kind, basename(finding.source.file), finding.source.function, finding.source.code
    return finding.kind, _LAST_NUMBER.sub("", finding.kernel or ""), finding.argument


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."


def _memory(trace: Trace, base: Trace) -> tuple[list[Regression], list[str]]:
    before, after = _peaks(base), _peaks(trace)
    if not before or not after:
        which = "the trace" if before else "the baseline" if after else "both traces"
        return [], [f"Peaks of memory were not compared, because lifetimes of storages are missing in {which}."]
    found = []
    for (rank, device), peak in after.items():
        old = before.get((rank, device))
        if old is None or not old.live_bytes:
            continue
        rise = peak.live_bytes - old.live_bytes
        if rise >= LEAST_PEAK_BYTES and peak.live_bytes >= LEAST_PEAK_FACTOR * old.live_bytes:
            of_rank = f" of rank {rank}" if rank is not None and len(after) > 1 else ""
            where = f", in step {peak.step}" if peak.step is not None else ""
            sentence = (
                f"The peak of the storages that compiled code saw on {device}{of_rank} rose from"
                f" {format_bytes(old.live_bytes)} to {format_bytes(peak.live_bytes)}{where}."
            )
            found.append(Regression("memory", sentence, factor=peak.live_bytes / old.live_bytes))
    return found, []


def _peaks(trace: Trace) -> dict[tuple[int | None, str], RunPeak]:
    ranks = {run.log: run.rank for run in list_runs(trace)}
    found: dict[tuple[int | None, str], RunPeak] = {}
    for peak in run_peaks(trace):  # the highest comes first
        found.setdefault((ranks.get(peak.log), peak.device), peak)
    return found


def _times(trace: Trace, base: Trace) -> tuple[list[Regression], list[str]]:
    sides = (base, Wanted(["the baseline"])), (trace, Wanted(["the trace"]))
    logs, _ = match_logs(*sides)
    pairs = match(base, trace, (None, None), logs)
    times = compare_times(base, trace, logs, pairs)
    if not times.compared:
        return [], ["Times were not compared, because no launch site was timed in enough calls of both traces."]
    found = [*_slower_kernels(times)]
    is_slow = times.steps is not None and times.steps.is_significant and times.steps.factor > 1
    if not times.changed_most:
        if is_slow and times.steps is not None:
            found.insert(0, Regression("step time", _sides(steps_sentence(times.steps)), factor=times.steps.factor))
        return found, []
    note = (
        f"Most launch sites changed together: in the median they take {times.common_factor:.2f} times as long as in the"
        " baseline. Such a change may come from the machine, so only kernels that changed by more than the others"
        " count, and steps do not."
    )
    return found, [note]


def _slower_kernels(times: Times) -> Iterator[Regression]:
    for change in times.slower:
        if change.difference_ns >= LEAST_PART * times.left_ns:
            yield Regression("kernel time", _sides(f"A kernel is slower: {change_text(change)}."), factor=change.factor)


def _sides(sentence: str) -> str:
    return sentence.replace("on the left", "in the baseline").replace("on the right", "now")
