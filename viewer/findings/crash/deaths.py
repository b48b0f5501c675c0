"""Finds out how and where each recorded process died: from its parent, its log and its launch ring."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, Literal

from stepscope.viewer.crash.queries import process_ends
from stepscope.viewer.crash.queries.cpp_stacks import CppRaise, cpp_raise
from stepscope.viewer.crash.queries.last_seen import LastSeen, last_seen
from stepscope.viewer.crash.queries.process_ends import ExceptionRow, ProcessEndRow, RingLaunch
from stepscope.viewer.findings.crash.processes import is_printed, may_have_left, own_end, recorded_nothing, unfinished
from stepscope.viewer.graphs.queries.graphs import graph_row
from stepscope.viewer.overview.queries.runs import list_runs
from stepscope.viewer.overview.rows import RunRow
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import format_ns

Kind = Literal["no_end", "device", "launch", "exception", "after_end"]
_ASKED_FOR = ("KeyboardInterrupt",)
_ASKING = ("SIGINT", "SIGTERM", "SIGHUP", "SIGPIPE")
_LOST_OTHERS = re.compile(
    r"Dist(?:Backend|Network|Store)?Error|NCCL|[Gg]loo|ProcessGroup|Connection (?:closed|reset|refused)|Broken pipe"
    r"|timed? ?out",
)
"""Errors of a process that has lost another one."""


@dataclass(frozen=True)
class Death:
    """A process that died."""

    kind: Kind
    """``no_end`` without an end record; ``device`` after an error of a device; ``launch`` by an exception in a launch;
    ``exception`` by another one; ``after_end`` by a signal after the end of the recording."""
    run: RunRow
    end: ProcessEndRow | None
    """None if no parent recorded it."""
    error: ExceptionRow | None
    device_error: str | None
    at: LastSeen
    ring: Sequence[RingLaunch]
    """Rows of the launch ring; empty without one."""

    @property
    def on_device(self) -> list[RingLaunch]:
        """Launches that were submitted and are not known to be finished by the device."""
        return [row for row in self.ring if row.role == "in_flight" and row.device is not None]

    @property
    def blamed(self) -> int | None:
        """Launch at which it died; None if all launches had returned and no device had work left."""
        return None if self.at.returned and not self.on_device else self.at.launch

    @property
    def last_finished(self) -> list[RingLaunch]:
        """Last finished launch of each stream."""
        return [row for row in self.ring if row.role == "last_finished"]

    @property
    def threads(self) -> list[RingLaunch]:
        """Last launch of each thread."""
        return [row for row in self.ring if row.role == "last_started"]

    @property
    def symptom(self) -> str | None:
        """Cause of the death, None if unknown. Equal texts are one symptom."""
        return process_ends.symptom(self.end, self.error) or self.device_error

    @property
    def cpp_raise(self) -> CppRaise | None:
        """Position in C++ at which the error was raised; None if unknown."""
        told = [self.error.text if self.error else None, self.end.error_tail if self.end else None]
        return next((found for text in told if (found := cpp_raise(text)) is not None), None)

    @property
    def was_asked(self) -> bool:
        """Whether a signal asked it to stop and no other cause of its death is known."""
        asked = self.end is not None and self.end.signal_name in _ASKING
        return asked and not (self.end and self.end.timed_out) and self.error is None and self.device_error is None

    @property
    def how(self) -> str:
        """Description such as ``died of SIGSEGV``."""
        if self.end is None:
            return "died"
        if self.end.timed_out:
            return f"was ended at its time limit of {format_ns(self.end.duration_ns)}"
        if self.was_asked:
            return f"was stopped by {self.end.signal_name}"
        if self.end.signal_name is not None:
            return f"was killed by {self.end.signal_name}"
        return f"exited with code {self.end.exit_code}"


def deaths(trace: Trace) -> list[Death]:
    """Return the deaths in the order of the logs. A process that ended its log after Ctrl-C did not die."""
    return trace.once(_deaths)


def _deaths(trace: Trace) -> list[Death]:
    runs = list_runs(trace)
    how, errors, devices = (
        process_ends.process_ends(trace),
        process_ends.uncaught_exceptions(trace),
        process_ends.device_errors(trace),
    )
    within, rings = process_ends.within_a_launch(trace), process_ends.ring_launches(trace)
    lost = {run.log for run in unfinished(runs, how) if not may_have_left(run, runs, how, within)}
    found = []
    for run in runs:
        end, error = own_end(run, how), errors.get(run.log)
        if end is not None and end.signal_name is None and recorded_nothing(run):
            found += _before_recording(trace, run, end)
            continue
        device_error = devices.get(run.log) or (error.device_error if error else None)
        if run.log in lost or (run.complete and (device_error or error or _ended_late(end))):
            death = _death(trace, run, end, error, device_error, rings.get(run.log, []), run.log in lost)
            if death is not None:
                found.append(death)
    return _joined(found, {(run.pid, run.crash_run) for run in runs if is_printed(run)})


def _joined(found: Sequence[Death], printed: Collection[object]) -> list[Death]:
    """Join the deaths of a process with a second log of its output; the log with its launches counts."""
    joined: dict[object, Death] = {}
    for death in found:
        process: object = (death.run.pid, death.run.crash_run)
        other = joined.get(process)
        if process not in printed or other is None:
            joined[process if process in printed else death.run.log] = death
            continue
        more, less = (death, other) if _launched(death) > _launched(other) else (other, death)
        error, device_error = more.error or less.error, more.device_error or less.device_error
        joined[process] = replace(more, error=error, device_error=device_error)
    return [replace(death, kind="launch") if _raised(death) else death for death in joined.values()]


def _launched(death: Death) -> tuple[bool, int]:
    return death.blamed is not None, death.at.launches


def _raised(death: Death) -> bool:
    """Return whether an exception ended a process whose output was recorded, in a launch."""
    was_killed = death.end is not None and death.end.signal_name is not None
    told = death.error is not None and death.blamed is not None
    return death.kind == "no_end" and is_printed(death.run) and told and not was_killed


def failed_beside(death: Death, all_deaths: Sequence[Death]) -> Death | None:
    """Return the rank whose failure explains that this one ended silently or was asked to stop, because launchers end
    all other ranks. None if no process of the same parent failed, or it only failed because it lost another."""
    if (death.run.world_size or 1) < 2 or death.error is not None or death.device_error is not None:
        return None
    if death.end is not None and not death.was_asked:
        return None
    for other in all_deaths:
        is_beside = other.run.parent_pid is not None and other.run.parent_pid == death.run.parent_pid
        if other is not death and is_beside and other.symptom is not None and not other.was_asked:
            outlived = (death.at.time_unix_ns or 0) > (other.at.time_unix_ns or 0)
            if outlived or not _LOST_OTHERS.search(other.symptom):
                return other
    return None


def ended_before(trace: Trace, death: Death) -> list[tuple[int, int]]:
    """Return the ranks of the same run that had ended normally after fewer steps, with the last step of each, if the
    process died because it lost another one."""
    if death.at.step is None or death.symptom is None or not _LOST_OTHERS.search(death.symptom):
        return []
    dead = {one.run.log for one in deaths(trace)}
    ended = []
    for run in list_runs(trace):
        is_beside = run.parent_pid is not None and run.parent_pid == death.run.parent_pid
        is_same_run = is_beside and run.crash_run == death.run.crash_run
        if is_same_run and run.rank not in (None, death.run.rank) and run.complete and run.log not in dead:
            last = last_seen(trace, run.log)
            is_earlier = (last.time_unix_ns or 0) < (death.at.time_unix_ns or 0)
            if is_earlier and last.step is not None and last.step < death.at.step:
                ended.append((run.rank, last.step))
    return ended


def same(death: Death) -> object:
    """Return a key that is equal for runs of --crash with the same cause, and unique for each other death."""
    run = death.end.run if death.end else None
    return (death.symptom, death.run.rank) if run is not None and death.symptom is not None else death.run.log


def cpp_facts(group: Sequence[Death]) -> dict[str, Any]:
    """Return the position in C++ at which the error was raised, from any run, for programs."""
    found = next((raised for death in group if (raised := death.cpp_raise) is not None), None)
    return {"cpp_raised": found.text if found else None, "cpp_stack": found.frames if found else []}


def _before_recording(trace: Trace, run: RunRow, end: ProcessEndRow) -> list[Death]:
    """Return the death of a process that raised an exception before its recording began, as standard error shows."""
    told = process_ends.raised(end.error_tail) if end.exit_code and end.error_tail else None
    error = ExceptionRow(run.log, None, *told, []) if told else None
    if error is None or error.type in _ASKED_FOR:
        return []
    kind: Kind = "device" if error.device_error else "exception"
    return [Death(kind, run, end, error, error.device_error, last_seen(trace, run.log), [])]


def _ended_late(end: ProcessEndRow | None) -> bool:
    return end is not None and end.signal_name is not None and end.signal_name not in _ASKING


def _death(
    trace: Trace,
    run: RunRow,
    end: ProcessEndRow | None,
    error: ExceptionRow | None,
    device_error: str | None,
    ring: Sequence[RingLaunch],
    is_lost: bool,
) -> Death | None:
    if (error is not None and error.type in _ASKED_FOR) or (end is not None and end.signal_name == "SIGINT"):
        return None
    if device_error is not None:
        kind: Kind = "device"
    elif is_lost:
        kind = "no_end"
    elif error is None:
        kind = "after_end"
    else:
        kind = "launch" if _left_a_launch(trace, run.log, error) else "exception"
    named = _named(ring, device_error is not None)
    return Death(kind, run, end, error, device_error, last_seen(trace, run.log, named), ring)


def _named(ring: Sequence[RingLaunch], on_device: bool) -> int | None:
    """Return the launch that the ring names as the place of death, or None. A device works through a stream in order,
    so it was at the first launch that is not known to be finished."""
    if on_device:
        submitted = [
            row.launch for row in ring if row.role == "in_flight" and row.device is not None and row.launch is not None
        ]
        if submitted:
            return submitted[0]
    begun = [row for row in ring if row.role == "last_started" and row.launch is not None]
    last = max(begun, key=lambda row: (row.returned is False, row.start_ns or 0), default=None)
    return last.launch if last else None


def _left_a_launch(trace: Trace, log: int, error: ExceptionRow) -> bool:
    """Return whether the last launch did not return and the exception passed through its wrapper."""
    at = last_seen(trace, log)
    graph = graph_row(trace, at.graph) if at.graph is not None and at.returned is False else None
    files = {PurePath(frame.file).stem for frame in error.frames}
    return graph is not None and graph.wrapper_key in files
