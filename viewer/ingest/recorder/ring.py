"""Adds what only the launch ring beside a log has: the last calls and steps, and where the process stopped.

Only a local log has a ring. Its name derives from the path of the log, never from the content of the log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from stepscope.tracer.schema.launches import Calls, Launches
from stepscope.tracer.schema.ring_format import Ring, RingCall, RingMark, RingStep, RingStream, read_ring
from stepscope.viewer.ingest.bounds import bounds_of
from stepscope.viewer.ingest.damage import Damage
from stepscope.viewer.ingest.recorder.launch_batches import EndedStep, LaunchBatches, LoggedMark
from stepscope.viewer.ingest.rows import IndexRows

if TYPE_CHECKING:
    from stepscope.viewer.ingest.recorder.launch_places import LaunchPlaces

HUNG_NS = 10_000_000_000
"""A launch in flight for at least this long when the process is ended was the reason to end it."""


class RingRows:
    """The rows that the ring of one log adds to those of the log."""

    def __init__(self, data: bytes | None, damage: Damage) -> None:
        self.ring: Ring | None = None
        self._in_flight_since_ns: int | None = None
        if data is None:
            return
        try:
            self.ring = read_ring(data)
        except ValueError as error:
            damage.add("broken_ring", str(error))
            return
        ring = self.ring
        calls, steps, marks = ([*filter(_can_be, parts)] for parts in (ring.calls, ring.steps, ring.marks))
        lost = len(ring.calls) + len(ring.steps) + len(ring.marks) - len(calls) - len(steps) - len(marks)
        streams, damaged = list(filter(_can_be, ring.streams)), ring.damaged + lost
        self.ring = replace(ring, calls=calls, steps=steps, marks=marks, streams=streams)
        if damaged:
            damage.add("broken_ring", f"{damaged:,} blocks of the launch ring are invalid")

    @property
    def has_ended(self) -> bool:
        """Whether the recorder ended normally, even if the log does not say so."""
        return self.ring is not None and self.ring.has_ended

    @property
    def left_between_calls(self) -> bool:
        """Whether a signal asked the process to exit and all its calls had ended."""
        return (
            self.ring is not None
            and self.ring.asked_by is not None
            and all(call.end_ns is not None for call in self.ring.calls)
        )

    def asked_by(self) -> int | None:
        """Return the signal that asked the process to exit, or None if there was none or a launch hung when it came."""
        if self.ring is None or self.ring.asked_by is None:
            return None
        began_ns = self._in_flight_since_ns
        return self.ring.asked_by if began_ns is None or self.ring.asked_ns - began_ns < HUNG_NS else None

    def not_recorded(self) -> list[tuple[str, str]]:
        """Return (what, why) for all that is missing in the log."""
        found = []
        if self.ring is not None and self.ring.write_errno is not None:
            found.append(("the rest of the run", f"the log could not be written: {os.strerror(self.ring.write_errno)}"))
        if self.ring is not None and self.ring.lost_calls:
            found.append(("launches in flight", f"{self.ring.lost_calls:,} calls found no room in the launch ring"))
        return found

    def add_calls(self, batches: LaunchBatches, steps: dict[int, EndedStep], marks: list[LoggedMark]) -> None:
        """Add calls, steps and marks that are missing in the log."""
        if self.ring is None:
            return
        known = set(batches.calls["call"])
        missing: dict[int, RingCall] = {}
        for call in self.ring.calls:
            # While a call is rewritten, the ring has it twice; the one that has ended is complete.
            if call.call not in known and (call.call not in missing or call.end_ns is not None):
                missing[call.call] = call
        if missing:
            batches.add(_batch([missing[number] for number in sorted(missing)]))
        for step in self.ring.steps:
            steps.setdefault(step.step, EndedStep(step.kind, step.by, step.start_ns, step.end_ns))
        in_log = {mark._replace(name=None) for mark in marks}
        names = {mark.who: mark.name for mark in marks if mark.what == "optimizer"}
        for mark in self.ring.marks:
            name = names.get(mark.who) if mark.what == "optimizer" else None
            if LoggedMark(mark.what, mark.who, None, mark.thread, mark.ns) not in in_log:
                marks.append(LoggedMark(mark.what, mark.who, name, mark.thread, mark.ns))

    def add_rows(
        self,
        rows: IndexRows,
        log: int,
        batches: LaunchBatches,
        places: LaunchPlaces | None,
        graph_id: Callable[[int], int],
    ) -> None:
        """Add the position of each thread and of each stream of a device."""
        if self.ring is not None and places is not None and len(places.launch_id):
            from stepscope.viewer.ingest.recorder.ring_launches import add_ring_launches

            self._in_flight_since_ns = add_ring_launches(self.ring, rows, log, batches, places, graph_id)


def _can_be(part: RingCall | RingStep | RingMark | RingStream) -> bool:
    """Return whether all numbers are in their bounds."""
    for field in fields(part):
        value, bounds = getattr(part, field.name), bounds_of(field.name)
        numbers = [value] if isinstance(value, int) else value if isinstance(value, Sequence) else []
        if any(type(number) is int and number not in bounds for number in numbers):
            return False
    return True


def _batch(calls: list[RingCall]) -> Launches:
    return Launches(
        calls=Calls(
            call=[call.call for call in calls],
            graph=[call.graph for call in calls],
            function=[call.function for call in calls],
            step=[call.step for call in calls],
            thread=[call.thread for call in calls],
            parent=[call.parent for call in calls],
            start_ns=[call.start_ns for call in calls],
            duration_ns=[_until(call) - call.start_ns for call in calls],
            launches=[len(call.sites) for call in calls],
            state=[call.state for call in calls],
        ),
        site=[site for call in calls for site in call.sites],
        start_ns=[start for call in calls for start in call.starts_ns],
        end_ns=[end for call in calls for end in call.ends_ns],
    )


def _until(call: RingCall) -> int:
    """Return the end of a call, or the last known time in it."""
    return call.end_ns if call.end_ns is not None else max([call.start_ns, *call.starts_ns, *call.ends_ns])
