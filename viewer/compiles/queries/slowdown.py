"""Queries what recompiles of a frame cost the steps in which they happened, and what its later steps cost."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stepscope.viewer.overview.queries.runs import list_steps
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_CALLED = """
    SELECT DISTINCT c.log, c.step, regexp_replace(g.compile_id, '/[^/]*$', '') AS frame_id
    FROM calls c JOIN graphs g ON g.graph = c.graph WHERE c.step IS NOT NULL AND g.compile_id IS NOT NULL
"""


@dataclass(frozen=True)
class StepTimes:
    """The median time of several steps, their compiles included."""

    steps: int
    median_ns: int | None


@dataclass(frozen=True)
class Slowdown:
    """Times of steps that ran one frame."""

    usual: StepTimes
    """Steps that called compiled code of the frame and compiled nothing."""
    recompiling: StepTimes
    """Steps in which the frame was recompiled."""
    uncompiled: StepTimes
    """Steps after the limit that called the same other frames as the usual steps and compiled nothing."""


class StepFrames:
    """The times of the steps of a trace, and the frames that each called."""

    def __init__(self, trace: Trace) -> None:
        self._called: defaultdict[tuple[int, int], set[str]] = defaultdict(set)
        for log, step, frame_id in sql.rows(trace, _CALLED):
            self._called[log, step].add(frame_id)
        rows = [row for row in list_steps(trace) if row.duration_ns is not None and row.compile_ns is not None]
        self._times = {(row.log, row.step): ((row.duration_ns or 0) + (row.compile_ns or 0)) for row in rows}
        self._compiled = {(row.log, row.step) for row in rows if row.compile_ns}

    def slowdown(self, log: int, frame_id: str, recompiled_in: Sequence[int], limit_step: int | None) -> Slowdown:
        """Return the times of the steps of one frame; `limit_step` is the step in which it reached the limit."""
        quiet = sorted(key for key in self._times if key[0] == log and key not in self._compiled)
        usual = [key for key in quiet if frame_id in self._called[key]]
        beside = {frozenset(self._called[key] - {frame_id}) for key in usual} - {frozenset()}
        later = [key for key in quiet if limit_step is not None and key[1] > limit_step]
        return Slowdown(
            usual=self._of(usual),
            recompiling=self._of((log, step) for step in set(recompiled_in)),
            uncompiled=self._of(key for key in later if self._called[key] in beside),
        )

    def _of(self, steps: Iterable[tuple[int, int]]) -> StepTimes:
        times = [self._times[key] for key in steps if key in self._times]
        return StepTimes(len(times), round(statistics.median(times)) if times else None)
