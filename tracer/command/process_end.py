"""Appends how a command ended to its logs."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

import orjson

from stepscope.tracer._version import __version__
from stepscope.tracer.command.watch import Ending
from stepscope.tracer.schema import log_format
from stepscope.tracer.schema.constants import ARTIFACT_PREFIX, FORMAT_VERSION
from stepscope.tracer.schema.process_ends import CrashRun, End, ProcessEnd, ToolError
from stepscope.tracer.schema.records import Record, Run, artifact_name, to_payload

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
            file.write(_encoded(end, pid_of(log) or end.pid))


def write_log(end: ProcessEnd, directory: Path, command: Sequence[str], level: str) -> Path:
    """Write a log with the command and its end, for a command without a log. Raises OSError."""
    log = directory / f"stepscope_trace_rank_0_{end.pid}_{secrets.token_hex(4)}.log"
    now, monotonic = time.time_ns(), time.perf_counter_ns()
    run = Run(
        format_version=FORMAT_VERSION, stepscope_version=__version__, python_version="",
        torch_version=None, triton_version=None, cuda_version=None, devices=[], rank=None, world_size=None,
        pid=end.pid, parent_pid=os.getpid(), argv=list(command), config={}, level=level,
        monotonic_ns=monotonic - end.duration_ns, unix_ns=now - end.duration_ns,
        utc_offset_s=time.localtime().tm_gmtoff,
    )  # fmt: skip
    log.write_bytes(_encoded(run, end.pid) + _encoded(end, end.pid))
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


def _encoded(record: Record, pid: int) -> bytes:
    prefix = log_format.encode_prefix(datetime.now(), pid, "tracer/records.py", 1)
    payload = orjson.dumps(to_payload(record))
    return log_format.encode_artifact(prefix, artifact_name(record), "json", payload, {})
