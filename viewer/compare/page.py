"""Builds the context of the page that lays two steps, or two logs, of a trace side by side."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from stepscope.viewer.compare.compare import compare_opened
from stepscope.viewer.compare.rows import Comparison, Wanted
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.overview.queries.runs import list_runs, list_steps
from stepscope.viewer.overview.rows import RunRow, StepRow
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import basename
from stepscope.viewer.web.addresses import NotThere, Page, Request
from stepscope.viewer.web.parameters import number, text


@dataclass(frozen=True)
class ChosenSide:
    """A log, and a step of it or all."""

    log: int
    step: int | None


@dataclass(frozen=True)
class ComparePage:
    runs: list[RunRow]
    left: ChosenSide | None
    """None if the trace has no log."""
    right: ChosenSide | None
    before: tuple[int, int] | None
    """The steps before the two that are compared; None if there are none, or all steps are compared."""
    after: tuple[int, int] | None
    tolerance: float | None
    """The relative difference that was given; None if tensors are compared by digests where they have them."""
    found: Comparison | None
    """None if the sides cannot be compared."""
    reason: str | None
    """The sentence that says why the sides cannot be compared."""


def compare_page(trace: Trace, request: Request) -> ComparePage:
    runs = list_runs(trace)
    if not runs:
        return ComparePage(runs, None, None, None, None, None, None, "This trace contains no log.")
    left, right = _sides(trace, request, runs)
    tolerance = _tolerance(request)
    found: Comparison | None = None
    reason: str | None = "Both sides are the same: choose two steps, or two logs."
    if left != right:
        sides = [(trace, Wanted([_name(runs, side)], step=side.step, log=side.log)) for side in (left, right)]
        try:
            found, reason = compare_opened(sides[0], sides[1], tolerance), None
        except StepscopeError as error:  # shown with the form, in which other sides can be chosen
            reason = str(error)
    before, after = _beside(trace, left, right)
    return ComparePage(runs, left, right, before, after, tolerance, found, reason)


def _sides(trace: Trace, request: Request, runs: list[RunRow]) -> tuple[ChosenSide, ChosenSide]:
    """Return the sides that the address names, else the first two logs, else the last two steps of the only log."""
    logs = [run.log for run in runs]
    left, right = request.optional_id("left"), request.optional_id("right")
    steps = request.optional_id("left_step"), request.optional_id("right_step")
    for log in (left, right):
        if log is not None and log not in logs:
            raise NotThere(f"This trace contains no log {log}.")
    if (steps[0] is None) != (steps[1] is None):
        raise NotThere("One side is a step and the other is all steps: give a step for both sides, or for neither.")
    if left is None and right is None and steps == (None, None) and len(logs) == 1:
        called = [row.step for row in list_steps(trace, logs[0]) if row.calls]
        if len(called) > 1:
            steps = called[-2], called[-1]
    left = logs[0] if left is None else left
    if right is None:
        right = next((log for log in logs if log != left), left) if steps == (None, None) else left
    sides = ChosenSide(left, steps[0]), ChosenSide(right, steps[1])
    for side in sides:
        if side.step is not None and all(row.step != side.step for row in list_steps(trace, side.log)):
            raise NotThere(f"Log {side.log} of this trace contains no step {side.step}.")
    return sides


def _beside(trace: Trace, left: ChosenSide, right: ChosenSide) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """Return the steps before both sides, and those after them, as far as graphs were called in them."""
    if left.step is None or right.step is None:
        return None, None
    ours, theirs = ([row for row in list_steps(trace, side.log) if row.calls] for side in (left, right))
    pairs = [(_next(ours, left.step, way), _next(theirs, right.step, way)) for way in (-1, 1)]
    before, after = ((a, b) if a is not None and b is not None else None for a, b in pairs)
    return before, after


def _next(rows: list[StepRow], step: int, way: int) -> int | None:
    return next((row.step for row in rows[::way] if (row.step - step) * way > 0), None)


def _tolerance(request: Request) -> float | None:
    given = request.text("tolerance")
    if given is None:
        return None
    try:
        tolerance = float(given)
    except ValueError:
        tolerance = -1
    if not isfinite(tolerance) or tolerance < 0:
        raise NotThere(f"“{given[:40]}” is not a tolerance: it must be a number that is not negative, such as 1e-5.")
    return tolerance


def _name(runs: list[RunRow], side: ChosenSide) -> str:
    return basename(next(run.path for run in runs if run.log == side.log))


PARAMETERS = (
    number("left", "The log on the left side."),
    number("left_step", "The step on the left side; without steps, all steps are compared."),
    number("right", "The log on the right side."),
    number("right_step", "The step on the right side."),
    text("tolerance", "The relative difference of statistics up to which tensors are equal, instead of digests."),
)
ROUTES = (Page("/compare", "compare/page.html", "Compare", ComparePage, compare_page, PARAMETERS),)
