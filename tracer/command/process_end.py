"""Appends how a command ended to its logs."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from stepscope.tracer.aoti.printed_log import run_record
from stepscope.tracer.command.watch import Ending
from stepscope.tracer.log.writer import encoded
from stepscope.tracer.schema.constants import ARTIFACT_PREFIX
from stepscope.tracer.schema.process_ends import CrashRun, End, ProcessEnd, ToolError

_LAST_BYTES = 4096
_LOG_PID = re.compile(r"stepscope_trace_rank_\d+_(\d+)_[0-9a-f]+\.log")


def record_of(ending: Ending, crash_run: CrashRun | None = None, tool_errors: Sequence[ToolError] = ()) -> ProcessEnd:
    killed = ending.code < 0
    return ProcessEnd(
        pid=ending.pid,
        exit_code=None if killed else ending.code,
        signal=-ending.code if killed else None,
        timed_out=ending.timed_out,
        duration_ns=ending.duration_ns,
        error_tail=ending.error_tail,
        crash_run=crash_run,
        tool_errors=list(tool_errors),
    )


def append(end: ProcessEnd, logs: Iterable[Path]) -> None:
    """Append `end` to each of `logs`. Raises OSError."""
    for log in logs:
        with log.open("r+b") as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # the process died while writing
                    file.write(b"\n")
            file.write(encoded(end, pid_of(log) or end.pid))


def write_log(end: ProcessEnd, directory: Path, command: Sequence[str], level: str) -> Path:
    """Write a log with the command and its end, for a command without a log. Raises OSError."""
    log = directory / f"stepscope_trace_rank_0_{end.pid}_{secrets.token_hex(4)}.log"
    run = run_record(command, end.pid, level)
    run = replace(
        run, python_version="", monotonic_ns=run.monotonic_ns - end.duration_ns, unix_ns=run.unix_ns - end.duration_ns
    )
    log.write_bytes(encoded(run, end.pid) + encoded(end, end.pid))
    return log


def has_ended(log: Path) -> bool:
    """Return whether the last record of a log is an `end`. Raises OSError."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
        _, end, behind = file.read().rpartition(f'"{ARTIFACT_PREFIX}{End.KIND}"'.encode())
    return bool(end) and all(line.startswith(b"\t") for line in behind.splitlines()[1:])  # its payload


def pid_of(log: Path) -> int | None:
    """Return the process that wrote a log, according to its name, or None for other names."""
    found = _LOG_PID.fullmatch(log.name)
    return int(found[1]) if found else None
