"""Keeps the launches of steps as arrays in memory, and merges those of a window that are narrower than a pixel.

A step may have a million launches, and a reader who zooms asks for many windows of it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from stepscope.viewer.judged.queries.verdicts import judged_launches
from stepscope.viewer.judged.rows import VERDICTS
from stepscope.viewer.overview.rows import StepRow
from stepscope.viewer.steps.rows import LaunchColumns
from stepscope.viewer.store import sql
from stepscope.viewer.store.kept import Kept
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.values import HEALTH_INDEX

if TYPE_CHECKING:
    import numpy.typing as npt

KEPT_BYTES = 96 << 20
"""Maximum size of the launches that an open trace keeps in memory: about 32 bytes for each."""
UNKNOWN = 127
"""Health of a launch without values, and verdict on a launch that was not judged."""
_LAUNCHES = """
    SELECT launch, site::INTEGER AS site, thread, start_ns - $origin AS since_ns,
           coalesce(duration_ns, CASE WHEN returned THEN -2 ELSE -1 END) AS duration_ns
    FROM launches WHERE log = $log AND step = $step AND start_ns IS NOT NULL
"""
_HEALTH = f"""
    SELECT v.launch, ({HEALTH_INDEX})::TINYINT AS worst FROM value_rows v
    WHERE v.log = $log AND v.step = $step AND v.moment = 'after' AND v.launch IS NOT NULL
"""


@dataclass(frozen=True)
class StepLaunches:
    """The launches of a step in the order of thread, start and id."""

    threads: npt.NDArray[Any]
    launch: npt.NDArray[Any]
    site: npt.NDArray[Any]
    thread: npt.NDArray[Any]
    """Index into `threads`."""
    since_ns: npt.NDArray[Any]
    """Time since the start of the step."""
    duration_ns: npt.NDArray[Any]
    """-1 if the launch did not return, -2 if it returned at an unknown time."""
    health: npt.NDArray[Any]
    verdict: npt.NDArray[Any]

    @property
    def nbytes(self) -> int:
        return sum(getattr(self, field.name).nbytes for field in fields(self))

    def window(self, start_ns: int, stop_ns: int, width: int) -> LaunchColumns:
        """Return the launches of a window, given by times since the start of the step.

        If a thread has more than 2 * `width` launches in it, those narrower than a pixel are merged."""
        import numpy as np

        inside = (self.since_ns <= stop_ns) & (self.since_ns + np.maximum(self.duration_ns, 0) >= start_ns)
        shown = np.flatnonzero(inside)
        crowded = np.bincount(self.thread[shown], minlength=len(self.threads)) > 2 * width
        pixel = max(1, (stop_ns - start_ns) // width)
        duration = self.duration_ns[shown]
        # A launch whose duration is unknown is drawn alone, as -1 and -2 mean something.
        merged = crowded[self.thread[shown]] & (duration >= 0) & (duration < pixel)
        rows = [self._alone(shown[~merged], start_ns), self._bins(shown[merged], start_ns, pixel)]
        launch, site, thread, since, lasts, count, *classes = (
            np.concatenate(parts) for parts in zip(*rows, strict=True)
        )
        order = np.lexsort((launch, since, thread))
        known = [np.where(classified == UNKNOWN, -1, classified) for classified in classes]
        found = (launch, site, self.threads[thread], since, lasts, count, *known)
        return LaunchColumns(*(column[order].tolist() for column in found))

    def _alone(self, at: npt.NDArray[Any], start_ns: int) -> tuple[npt.NDArray[Any], ...]:
        import numpy as np

        since, count = self.since_ns[at] - start_ns, np.ones(len(at), np.int64)
        classes = self.health[at], self.verdict[at]
        return self.launch[at], self.site[at], self.thread[at], since, self.duration_ns[at], count, *classes

    def _bins(self, at: npt.NDArray[Any], start_ns: int, pixel: int) -> tuple[npt.NDArray[Any], ...]:
        """Merge launches, which are in the order of thread and start, by thread and pixel."""
        import numpy as np

        if not len(at):
            return self._alone(at, start_ns)
        thread, since, duration = self.thread[at], self.since_ns[at] - start_ns, self.duration_ns[at]
        place = np.maximum(since, 0) // pixel
        is_first = np.ones(len(at), bool)
        is_first[1:] = (thread[1:] != thread[:-1]) | (place[1:] != place[:-1])
        first = np.flatnonzero(is_first)
        count = np.diff(first, append=len(at))
        longest = np.flatnonzero(duration == np.repeat(np.maximum.reduceat(duration, first), count))
        # The first of the longest ones of each bin.
        of_bin = longest[np.searchsorted(longest, first)]
        lasts = np.maximum.reduceat(since + duration, first) - since[first]
        classes = [np.minimum.reduceat(one[at], first) for one in (self.health, self.verdict)]
        return self.launch[at][of_bin], self.site[at][of_bin], thread[first], since[first], lasts, count, *classes


def step_launches(trace: Trace, row: StepRow) -> StepLaunches:
    """Return the launches of a step, which are kept in memory while there is room."""
    return trace.once(_kept).get((row.log, row.step), lambda: _read(trace, row))


def _kept(trace: Trace) -> Kept[StepLaunches]:
    return Kept(KEPT_BYTES, lambda _, found: found.nbytes)


def _read(trace: Trace, row: StepRow) -> StepLaunches:
    import numpy as np

    place = {"log": row.log, "step": row.step}
    found = sql.columns(trace, _LAUNCHES, {**place, "origin": row.start_ns})
    threads, thread = np.unique(found["thread"], return_inverse=True)
    order = np.lexsort((found["launch"], found["since_ns"], thread))
    launch = found["launch"][order]
    health = np.full(len(launch), UNKNOWN, np.int8)
    if len(launch) and sql.has_rows(trace, "value_rows"):
        _worst(health, launch, sql.columns(trace, _HEALTH, place))
    verdict = np.full(len(launch), UNKNOWN, np.int8)
    judged = [one for one in judged_launches(trace, row.log, row.step) if one.launch is not None]
    if len(launch) and judged:
        classes = np.array([VERDICTS.index(one.verdict) for one in judged], np.int8)
        _worst(verdict, launch, {"launch": np.array([one.launch for one in judged]), "worst": classes})
    return StepLaunches(
        threads, launch, found["site"][order], thread.astype(np.int16)[order], found["since_ns"][order],
        found["duration_ns"][order], health, verdict,
    )  # fmt: skip


def _worst(classes: npt.NDArray[Any], launch: npt.NDArray[Any], found: dict[str, npt.NDArray[Any]]) -> None:
    """Set the worst class of each launch, such as the health of its outputs."""
    import numpy as np

    by_id = np.argsort(launch, kind="stable")
    ids = launch[by_id]
    at = np.minimum(np.searchsorted(ids, found["launch"]), len(ids) - 1)
    known = ids[at] == found["launch"]
    np.minimum.at(classes, by_id[at[known]], found["worst"][known])
