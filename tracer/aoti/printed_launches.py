"""Combines the output of the debug printer into launches, and into the model runs that they belong to.

The text does not contain threads. A launch that began before another ended ran in another thread, so each lane below
has one launch at a time; with one thread there is one lane.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from stepscope.tracer.aoti.printer_output import Printed, PrintedFile, PrintedScalar, PrintedTensor

MOST_LANES = 64
MOST_HELD = 8192
"""Number of launches without inputs after which they are split into runs."""


@dataclass
class LaunchPrints:
    """The output of one launch, before and after it."""

    kernel: str
    begin_ns: int | None = None
    """Time at which the last output before it was read."""
    end_ns: int | None = None
    """Time at which the first output after it was read."""
    before: list[Printed] = field(default_factory=list)
    after: list[Printed] = field(default_factory=list)
    scalars: list[tuple[int, PrintedScalar]] = field(default_factory=list)
    """Numbers, each with its position among all printed arguments."""

    @property
    def printed(self) -> list[Printed]:
        return self.before or self.after

    def at(self, argument: int, moment: str) -> Printed | None:
        """Return what was printed of an argument before or after the launch, or None."""
        printed = self.before if moment == "before" else self.after
        return printed[argument] if argument < len(printed) else None

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of the tensors as printed, with repeats if the kernel gets one twice; empty at level 3."""
        return tuple(one.argument for one in self.printed if isinstance(one, PrintedTensor | PrintedFile))

    @property
    def returned(self) -> bool:
        """Whether anything was printed after it."""
        return bool(self.after)

    @property
    def is_whole(self) -> bool:
        """Whether everything that was printed before it was printed after it as well."""
        return len(self.after) >= len(self.before)


@dataclass
class ModelRun:
    lane: int
    inputs: dict[str, PrintedTensor] = field(default_factory=dict)
    launches: list[LaunchPrints] = field(default_factory=list)
    most: int = field(default_factory=lambda: MOST_HELD)
    """Number of launches after which they are split into runs."""

    @property
    def open(self) -> LaunchPrints | None:
        """Launch that has not ended; None if all have."""
        return self.launches[-1] if self.launches and not self.launches[-1].is_whole else None


class LaunchReader:
    """Combines output into launches and runs.

    A run is yielded when the next one of its lane begins, or when many repeats are known; the last ones at the end.
    """

    def __init__(self) -> None:
        self._lanes: list[ModelRun] = []
        self._known: dict[str, set[tuple[str, ...]]] = {}
        """Arguments of ended launches, by kernel."""
        self._early: dict[str, list[PrintedScalar]] = {}
        """Numbers printed before any tensor of their launch, by kernel."""

    def take(self, event: Printed) -> Iterator[ModelRun]:
        """Add `event`, and yield the runs that it shows to have ended."""
        if isinstance(event, PrintedTensor) and event.moment == "input":
            yield from self._input(event)
            return
        if isinstance(event, PrintedScalar):
            self._scalar(event)
            return
        kernel, name = event.kernel or "", _argument(event)
        if event.moment == "before":
            launch = next((one for one in self._opened(kernel) if not one.after and self._joins(one, name)), None)
            if launch is None:
                launch = LaunchPrints(kernel, scalars=list(enumerate(self._early.pop(kernel, []))))
                yield from self._add(launch, type(event))
            launch.before.append(event)
            launch.begin_ns = event.at_ns
            return
        waiting = (one for one in self._opened(kernel) if _argument(one.before[len(one.after)]) == name)
        launch = next(waiting, None)
        if launch is None:  # the output before the launch is missing
            launch = LaunchPrints(kernel)
            yield from self._add(launch, type(event))
        launch.after.append(event)
        launch.end_ns = event.at_ns if launch.end_ns is None else launch.end_ns
        if launch.is_whole:
            self._known.setdefault(kernel, set()).add(launch.arguments)

    def end(self) -> Iterator[ModelRun]:
        """Yield the remaining runs, in the order of the lanes."""
        for run in self._lanes:
            yield from split(run)
        self._lanes = []

    def _scalar(self, event: PrintedScalar) -> None:
        """Add a number before a launch; that after it has the same value."""
        if event.moment != "before":
            return
        launch = next((one for one in self._opened(event.kernel) if not one.after), None)
        if launch is not None:
            launch.scalars.append((len(launch.before) + len(launch.scalars), event))
        else:
            self._early.setdefault(event.kernel, []).append(event)

    def _opened(self, kernel: str) -> Iterator[LaunchPrints]:
        return (run.open for run in self._lanes if run.open is not None and run.open.kernel == kernel)

    def _joins(self, launch: LaunchPrints, argument: str) -> bool:
        """Return whether `argument` is the next one of `launch`, and not one of a launch in another thread."""
        if not launch.arguments:
            return False
        so_far = (*launch.arguments, argument)
        known = self._known.get(launch.kernel, set())
        return (
            argument not in launch.arguments
            or launch.arguments not in known
            or any(one[: len(so_far)] == so_far for one in known)
        )

    def _input(self, event: PrintedTensor) -> Iterator[ModelRun]:
        """Add an input of the model, which is printed at the begin of a run; yield the runs that this ends."""
        for run in self._lanes:
            if not run.launches and event.argument not in run.inputs:
                run.inputs[event.argument] = event
                return
        lane = next((run.lane for run in self._lanes if run.open is None), len(self._lanes))
        if lane == MOST_LANES:
            lane = 0
        if lane < len(self._lanes):
            yield from split(self._lanes[lane])
            self._lanes[lane] = ModelRun(lane, {event.argument: event})
        else:
            self._lanes.append(ModelRun(lane, {event.argument: event}))

    def _add(self, launch: LaunchPrints, level: type[Printed]) -> Iterator[ModelRun]:
        run = next((run for run in self._lanes if run.open is None), None)
        if run is not None and run.launches and not isinstance(run.launches[0].printed[0], level):  # another model
            yield from split(run)
            run = self._lanes[run.lane] = ModelRun(run.lane)
        if run is None and len(self._lanes) == MOST_LANES:
            yield from split(self._lanes[0])
            run = self._lanes[0] = ModelRun(0)
        if run is None:
            run = ModelRun(len(self._lanes))
            self._lanes.append(run)
        elif len(run.launches) >= run.most and not run.inputs:
            yield from _repeated(run)
        run.launches.append(launch)


def _argument(event: Printed) -> str:
    return event.argument if isinstance(event, PrintedTensor | PrintedFile) else ""


def split(run: ModelRun) -> Iterator[ModelRun]:
    """Split launches into model runs.

    Levels 1 and 3 print no inputs, so nothing shows the begin of a run: a sequence of launches that repeats is a run.
    """
    if run.inputs:
        yield run
        return
    size = period([(launch.kernel, *launch.arguments) for launch in run.launches]) if run.launches else 1
    for first in range(0, len(run.launches), size):
        yield ModelRun(run.lane, {}, run.launches[first : first + size])


def _repeated(run: ModelRun) -> Iterator[ModelRun]:
    """Remove and yield the repeats in a lane, so that it does not grow with the text.

    The last two repeats stay, so that the next ones are recognised.
    """
    size = period([(launch.kernel, *launch.arguments) for launch in run.launches])
    whole = max(len(run.launches) // size - 2, 0) * size
    for first in range(0, whole, size):
        yield ModelRun(run.lane, {}, run.launches[first : first + size])
    del run.launches[:whole]
    run.most = max(MOST_HELD, 2 * len(run.launches))


def period(items: Sequence[object]) -> int:
    """Return the shortest period of `items` that occurs at least twice, else their number; the last may be cut off."""
    border = [0] * len(items)
    length = 0
    for position in range(1, len(items)):
        while length and items[position] != items[length]:
            length = border[length - 1]
        length += items[position] == items[length]
        border[position] = length
    shortest = len(items) - border[-1] if items else 0
    return shortest if 2 * shortest <= len(items) else len(items)
