"""Provides what the templates of steps use: the strip of steps, and the height of a timeline."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.viewer.overview.rows import SEVERITY_SIGNS
from stepscope.viewer.speed.queries.verdict import device_text, share_text
from stepscope.viewer.steps.marks import (
    InStep,
    curve_marks,
    findings_by,
    findings_by_compile,
    findings_by_step,
    step_marks,
)

if TYPE_CHECKING:
    from stepscope.viewer.overview.rows import StepRow
    from stepscope.viewer.steps.rows import Span, Timeline


AXIS_PX, SPAN_PX, CALL_PX, LAUNCH_PX, HEALTH_PX, GAP_PX, MINIMAP_PX, MEMORY_PX = 22, 16, 20, 34, 14, 6, 30, 64
STREAM_PX = 26
STRIP_HEIGHT = 40


def position(rows: list[StepRow], row: StepRow) -> int:
    return next(place for place, other in enumerate(rows) if other.step == row.step)


def beside(rows: list[StepRow], row: StepRow) -> int | None:
    """Return the step before `row`, or the next one, in which graphs were called as in `row`; None if there is none."""
    if not row.calls:
        return None
    called = [other.step for other in rows if other.calls and other.step != row.step]
    return max((step for step in called if step < row.step), default=min(called, default=None))


def timeline_height(timeline: Timeline, has_memory: bool = False) -> int:
    """Return the height that `layout` in static/js/steps/timeline_model.js computes: the page reserves it."""
    height = spans_height(timeline.spans)
    for thread in timeline.threads:
        depths = [call.depth for call in timeline.calls if call.thread == thread]
        height += GAP_PX + LAUNCH_PX + (CALL_PX * (1 + max(depths)) if depths else 0)
        height += HEALTH_PX if timeline.launches.health else 0
        height += HEALTH_PX if timeline.launches.verdict else 0
    if timeline.streams:
        height += GAP_PX + STREAM_PX * len(timeline.streams)
    return height + (MEMORY_PX + GAP_PX if has_memory else 0)


def spans_height(spans: list[Span]) -> int:
    depths = [span.depth for span in spans]
    rows = 1 + max(depths) - min(depths) if depths else 0
    return AXIS_PX + MINIMAP_PX + GAP_PX + (GAP_PX + SPAN_PX * rows if rows else 0)


@dataclass(frozen=True)
class Bar:
    """A bar of the strip of steps: one step, or the slowest of several."""

    step: StepRow
    x: float
    width: float
    height: float
    capped: bool
    others: int
    label: str
    findings: list[InStep]
    """Findings of its steps, the worst first."""

    @property
    def sign(self) -> str:
        return SEVERITY_SIGNS[self.findings[0].severity] if self.findings else ""


@dataclass(frozen=True)
class Strip:
    bars: list[Bar]
    width: float
    median_ns: int
    longest: StepRow


def steps_strip(
    steps: list[StepRow], findings: Sequence[InStep] = (), width: int = 960, most: int = 320
) -> Strip | None:
    """Return bars of step durations, capped at four medians so that a slow step does not hide the others."""
    durations = sorted(step.duration_ns for step in steps if step.duration_ns is not None)
    if not durations:
        return None
    median = round(statistics.median(durations))
    cap = max(min(4 * median, durations[-1]), 1)
    group = -(-len(steps) // most)
    groups = [steps[start : start + group] for start in range(0, len(steps), group)]
    pitch = min(width / len(groups), 24.0)
    every = max(1, round(24 / pitch))
    of_step = findings_by_step(findings, {step.log for step in steps})
    bars = []
    for index, members in enumerate(groups):
        slowest = max(members, key=lambda step: step.duration_ns or 0)
        duration = slowest.duration_ns or 0
        size = round(max(2.0, STRIP_HEIGHT * min(duration, cap) / cap), 1)
        label = str(slowest.step) if group == 1 and index % every == 0 else ""
        x = round(index * pitch, 2)
        found = [finding for step in members for finding in of_step.get((step.log, step.step), ())]
        wide = max(1.0, round(pitch - 2, 2))
        bars.append(Bar(slowest, x, wide, size, duration > cap, len(members) - 1, label, found))
    return Strip(bars, round(len(groups) * pitch, 1), median, max(steps, key=lambda step: step.duration_ns or 0))


@dataclass(frozen=True)
class OverlayChoice:
    """A step whose launches can be shown below those of another step."""

    value: str
    """Its value in the address: ``median`` or the number of the step."""
    label: str
    step: int
    duration_ns: int | None


MOST_CHOICES = 100


def overlay_choices(steps: list[StepRow], row: StepRow) -> list[OverlayChoice]:
    """Return the median of the steps of the same kind, and the steps around `row`."""
    alike = sorted(
        (step for step in steps if step.kind == row.kind and step.duration_ns is not None),
        key=lambda step: step.duration_ns or 0,
    )
    place = max(0, min(position(steps, row) - MOST_CHOICES // 2, len(steps) - MOST_CHOICES))
    others = [step for step in steps[place : place + MOST_CHOICES] if step.step != row.step]
    choices = [OverlayChoice(str(step.step), f"step {step.step}", step.step, step.duration_ns) for step in others]
    if len(alike) < 3:
        return choices
    median = alike[(len(alike) - 1) // 2]
    text = f"median step (step {median.step} of {len(alike):,})"
    return [OverlayChoice("median", text, median.step, median.duration_ns), *choices]


FILTERS = {
    "position": position,
    "beside": beside,
    "timeline_height": timeline_height,
    "spans_height": spans_height,
    "steps_strip": steps_strip,
    "overlay_choices": overlay_choices,
    "share_of": share_text,
    "device_text": device_text,
    "step_marks": step_marks,
    "curve_marks": lambda findings, runs, log: curve_marks(findings, {run.log for run in runs}, log),
    "findings_by": findings_by,
    "findings_by_compile": findings_by_compile,
    "findings_by_step": lambda findings, rows: findings_by_step(findings, {row.log for row in rows}),
}
GLOBALS: dict[str, Any] = {"MOST_MARKS": 3}
