"""Says in sentences how the times of two runs compare."""

from __future__ import annotations

from collections.abc import Sequence

from stepscope.viewer.compare.time_rows import LEAST_CALLS, LoneKernel, Refusion, Spread, StepChange, TimeChange, Times
from stepscope.viewer.text.formats import format_ns, plural


def time_lines(found: Times, most: int) -> list[str]:
    """Return the lines of a terminal; at most `most` launch sites of each list."""
    lines = [sentence for sentence in (steps_sentence(found.steps), sites_sentence(found)) if sentence]
    for title, changes in (("Slower on the right", found.slower), ("Faster on the right", found.faster)):
        lines += _listed(title, [change_text(change) for change in changes], most)
    lines += _listed("The same FX nodes in other kernels", [refusion_text(one) for one in found.refused], most)
    lines += _listed("Launch sites on one side alone", [lone_text(one) for one in found.alone], most)
    return lines


def steps_sentence(steps: StepChange | None) -> str:
    """Return how the steps compare; "" if a side has too few steps."""
    if steps is None:
        return ""
    times = f"{_spread(steps.left)} on the left and {_spread(steps.right)} on the right"
    if not steps.is_significant:
        return f"Steps take {times}: the spread of the steps is too large, or the difference too small, to say more."
    return f"Steps take {times}, {_factor(steps.factor)}."


def sites_sentence(found: Times) -> str:
    """Return how many launch sites were compared, and what they have in common."""
    if not found.compared:
        return f"Times of kernels were not compared: no launch site was timed in {LEAST_CALLS} calls on both sides."
    changed = len(found.slower) + len(found.faster)
    said = (
        f"Of {plural(found.compared, 'launch site')}, {_are(len(found.slower))} slower and {len(found.faster)} faster"
    )
    said += " by more than the spread of their calls" if changed else ", as far as the spread of their calls tells"
    if not found.changed_most:
        return f"{said}."
    common = found.common_factor
    most = (
        f"{found.changed_together} of them changed together: in the median the right side takes {common:.2f} times as"
    )
    return f"{said} and by more than the others. {most} long as the left side."


def change_text(change: TimeChange) -> str:
    """Return a launch site with the times of both sides."""
    place = f" ({change.source.place})" if change.source else ""
    return (
        f"{change.kernel} of {change.graph}{place}: {_spread(change.left)} → {_spread(change.right)} a launch on the"
        f" {change.measured_on}, {_factor(change.factor)}"
    )


def refusion_text(found: Refusion) -> str:
    """Return the kernels of both sides that compute the same nodes."""
    left, right = (", ".join(f"{one.kernel}{_time(one)}" for one in side) for side in (found.left, found.right))
    return f"{found.graph}: {left} → {right}"


def lone_text(one: LoneKernel) -> str:
    """Return a launch site that the other side lacks."""
    return f"{one.side}: {one.kernel} of {one.graph}, {plural(one.launches, 'launch')}{_time(one)}"


def _time(one: LoneKernel) -> str:
    return "" if one.time_ns is None else f" ({format_ns(one.time_ns)})"


def _spread(spread: Spread) -> str:
    low, median, high = (format_ns(round(ns)) for ns in (spread.low_ns, spread.median_ns, spread.high_ns))
    return f"{median} ({low} to {high})"


def _factor(factor: float) -> str:
    return f"{factor:.2f} times as long" if factor >= 1 else f"{1 / factor:.2f} times as fast"


def _are(count: int) -> str:
    return f"{count} {'is' if count == 1 else 'are'}"


def _listed(title: str, lines: Sequence[str], most: int) -> list[str]:
    rest = [f"  … and {plural(len(lines) - most, 'more launch site')}; --json lists them"] * (len(lines) > most)
    return [f"{title}:", *(f"  {line}" for line in lines[:most]), *rest] if lines else []
