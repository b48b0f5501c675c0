"""Queries how processes ended: exit codes and signals, uncaught exceptions, and launch rings."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from stepscope.tracer.schema.constants import CALL_RAISED, FAILED_CALL
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.overview.rows import ToolErrorRow
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_ENDS = """
    SELECT log, pid, exit_code, signal, timed_out, duration_ns, error_tail, run, purpose, environment, level, kernels,
           tool, tool_errors
    FROM process_ends ORDER BY log
"""
_RING = """
    SELECT r.log, r.role, r.thread, r.launch, r.graph, r.call, r.site, r.step, s.kernel, r.returned, r.device, r.stream,
           l.start_ns,
           1 + r.launch - (SELECT min(o.launch) FROM launches o WHERE o.log = r.log AND o.step = r.step)
    FROM ring_launches r LEFT JOIN sites s ON s.site = r.site LEFT JOIN launches l ON l.launch = r.launch
    ORDER BY r.log, r.role, l.start_ns, r.launch
"""
_DEVICE_ERROR = re.compile(r"(?:(?:CUDA|HIP)(?: driver)? error|Triton Error \[(?:CUDA|HIP)\]): *([^\n]*)")
_ILLEGAL_ACCESS = "CUDA error: an illegal memory access was encountered"
_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t]+.*\n|\n)*(\S[^\n]*)", re.MULTILINE)
_RAISED = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*))?$")
_KERNEL = re.compile(r"^kernel, \S+\.cpp:\d+, ")
"""Beginning of the message of a check in a C++ kernel, whose file is one of the compile cache."""
_CALLED = re.compile(r"\w+")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+\b")
_SHELL_SIGNALS = 128


@dataclass(frozen=True)
class ProcessEndRow:
    """The end of a command, also for the logs of its child processes, whose own pid differs from `pid`."""

    log: int
    pid: int
    exit_code: int | None
    signal: int | None
    timed_out: bool
    duration_ns: int | None
    """None if no process waited for it and only its launch ring has the signal that asked it to exit."""
    error_tail: str | None
    run: int | None
    """Number of the run of --crash, counted from 1."""
    purpose: str | None
    environment: dict[str, str]
    level: str | None
    kernels: list[str]
    tool: list[str]
    tool_errors: list[ToolErrorRow]

    @property
    def signal_name(self) -> str | None:
        """Return the name of the signal, such as ``SIGSEGV``, including one that a shell reports as its exit code."""
        number = self.signal
        if number is None and self.exit_code is not None and self.exit_code > _SHELL_SIGNALS:
            number = self.exit_code - _SHELL_SIGNALS
        try:
            return signal.Signals(number).name if number is not None else None
        except ValueError:
            return f"signal {number}" if self.signal is not None else None


@dataclass(frozen=True)
class ExceptionRow:
    """An uncaught exception."""

    log: int
    time_unix_ns: int | None
    type: str
    text: str
    frames: list[SourceLine]

    @property
    def title(self) -> str:
        """Return the type and the message in one line."""
        said = headline(self.text)
        return f"{self.type}: {said}" if said else self.type

    @property
    def device_error(self) -> str | None:
        """Return the error that a device reported, which a later and unrelated statement may have raised."""
        return device_error(self.text)


@dataclass(frozen=True)
class RingLaunch:
    """A launch in a launch ring, with the ids of the index."""

    role: str
    thread: int | None
    launch: int | None
    graph: int | None
    call: int | None
    site: int | None
    step: int | None
    kernel: str | None
    returned: bool | None
    device: int | None
    stream: int | None
    start_ns: int | None
    ordinal: int | None
    """Position of the launch in its step, counted from 1."""


def process_ends(trace: Trace) -> dict[int, ProcessEndRow]:
    """Return the ends of processes by log."""
    ends = {}
    for row in sql.named(trace, _ENDS, json=("environment", "kernels", "tool", "tool_errors")):
        row["tool_errors"] = [ToolErrorRow(**error) for error in row["tool_errors"] or ()]
        row |= {"environment": row["environment"] or {}, "kernels": row["kernels"] or [], "tool": row["tool"] or []}
        ends[row["log"]] = ProcessEndRow(**row)
    return ends


def uncaught_exceptions(trace: Trace) -> dict[int, ExceptionRow]:
    """Return the uncaught exceptions by log."""
    found = sql.rows(trace, "SELECT log, time_unix_ns, type, text, frames FROM uncaught_exceptions ORDER BY log")
    return {
        log: ExceptionRow(log, at, kind, text, [SourceLine(**frame) for frame in sql.json_value(frames)])
        for log, at, kind, text, frames in found
    }


def ring_launches(trace: Trace) -> dict[int, list[RingLaunch]]:
    """Return the launches in the ring of each log that has any."""
    rings: dict[int, list[RingLaunch]] = {}
    for log, *row in sql.rows(trace, _RING):
        rings.setdefault(log, []).append(RingLaunch(*row))
    return rings


def within_a_launch(trace: Trace) -> set[int]:
    """Return the logs whose rings contain a launch that did not return."""
    found = sql.rows(trace, "SELECT DISTINCT log FROM ring_launches WHERE role = 'in_flight' AND NOT returned")
    return {log for (log,) in found}


def device_errors(trace: Trace) -> dict[int, str]:
    """Return the error state of a device at the end of the recording, by log."""
    return dict(sql.rows(trace, "SELECT log, text FROM device_errors"))


def symptom(end: ProcessEndRow | None, error: ExceptionRow | None) -> str | None:
    """Return the symptom of a process's death, or None if it is unknown or the process did not die."""
    if end is not None and end.timed_out:
        return None
    if error is None and end is not None and end.duration_ns is None:
        return None
    if error is not None:  # a later signal belongs to the shutdown, in which memory of the device cannot be freed
        return _seen_by_tool(end, one_symptom(error.type, error.text))
    if end is not None and end.signal_name is not None:
        return end.signal_name
    told = raised(end.error_tail) if end is not None and end.exit_code and end.error_tail else None
    return _seen_by_tool(end, one_symptom(*told)) if told else None


def _seen_by_tool(end: ProcessEndRow | None, known: str) -> str:
    """Return an illegal access that compute-sanitizer found, which makes the device report another error."""
    found = end is not None and any(one.text.startswith("Invalid") for one in end.tool_errors)
    return _ILLEGAL_ACCESS if found and device_error(known) else known


def raised(errors: str) -> tuple[str, str] | None:
    """Return the type and text of the exception in the last traceback on standard error, or None."""
    tracebacks = list(_TRACEBACK.finditer(_ESCAPES.sub("", errors.replace("\r\n", "\n"))))
    found = _RAISED.match(tracebacks[-1][1]) if tracebacks else None
    return (found[1], found[2] or "") if found else None


def one_symptom(kind: str, text: str) -> str:
    """Return the exception without what differs between runs; a device's error keeps only its own name."""
    error = device_error(text)
    if error is not None:
        return error
    first = _ADDRESS.sub("0x…", headline(text))
    return f"{kind}: {first}" if first else kind


def headline(text: str) -> str:
    """Return the first line of an exception's text, without the file of a kernel that raised it, or the error inside a
    failed call of generated C++ code."""
    first, _, rest = _KERNEL.sub("", text.strip()).partition("\n")
    call, failed, _ = first.partition(FAILED_CALL)
    raised_in = _CALLED.match(call)
    if not failed or not rest.startswith(CALL_RAISED) or raised_in is None:
        return first
    said = rest[len(CALL_RAISED) :].partition("\n")[0].strip()
    return f"{said}, raised in {raised_in[0]}"


def device_error(text: str) -> str | None:
    found = _DEVICE_ERROR.search(text)
    return f"CUDA error: {found[1].strip()}" if found else None
