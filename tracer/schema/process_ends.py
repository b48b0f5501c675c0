"""Records of how a process ended; `stepscope.tracer.schema.records` names them all.

A process that is killed writes nothing any more. `stepscope run`, which waits for the command, therefore appends
`process_end` to the log of a process that failed or ended without an `end` record, and with ``--crash`` to every log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from stepscope.tracer.schema.record import Record


@dataclass(frozen=True)
class Frame:
    """A line of source code, of the model or of the stack of an exception."""

    file: str
    line: int
    function: str
    code: str


@dataclass(frozen=True)
class UncaughtException(Record):
    """An exception that nothing caught ended the process; `end` follows."""

    KIND: ClassVar[str] = "uncaught_exception"
    TABLE: ClassVar[str | None] = "uncaught_exceptions"

    type: str
    """The name of the class, with its module unless that is `builtins`: ``ValueError``, ``torch.AcceleratorError``."""
    text: str
    """The text of the exception, at most 16,000 characters, with the C++ stack if TORCH_SHOW_CPP_STACKTRACES=1 is set.
    If a call of generated C++ code failed, a line that begins with ``the call raised: `` says why, if known."""
    frames: list[Frame]
    """The frames of the stack, outermost first; the last 32 of a deep stack."""


@dataclass(frozen=True)
class CrashRun:
    """The run of `stepscope run --crash` that a log belongs to."""

    run: int
    """The number of the run, counted from 1."""
    purpose: str
    """``as it is``, ``one launch at a time``, ``values of the suspect``, ``sanity checks``, ``compute-sanitizer``."""
    environment: dict[str, str]
    """The environment variables that were set for this run."""
    level: str
    kernels: list[str]
    """The kernels whose values were read; empty if those of all kernels were."""
    tool: list[str] = field(default_factory=list)
    """The tool that the command ran under: ``compute-sanitizer --tool memcheck``."""


@dataclass(frozen=True)
class ToolError:
    """An error that a tool such as compute-sanitizer found in the command."""

    text: str
    """The error, e.g. ``Invalid __global__ write of size 4 bytes``."""
    kernel: str | None
    file: str | None
    """The source file of the kernel."""
    line: int | None
    where: str | None
    """The place of the first occurrence, such as ``thread (0,0,0) in block (8,0,0)``."""
    details: list[str]
    """Details of the first occurrence, e.g. ``Access to 0x83dafb248000 is out of bounds``."""
    times: int = 1


@dataclass(frozen=True)
class ProcessEnd(Record):
    """How a recorded command ended, according to `stepscope run`."""

    KIND: ClassVar[str] = "process_end"

    pid: int
    """The process id of the command; its other processes have logs of their own."""
    exit_code: int | None
    """The exit code; None if a signal ended the command."""
    signal: int | None
    timed_out: bool
    """Whether `stepscope run` ended the command because it reached its time limit."""
    duration_ns: int
    error_tail: str | None = None
    """The end of its standard error, at most 16 KiB; None if it was not kept."""
    crash_run: CrashRun | None = None
    """The run of ``--crash``; None without that option."""
    tool_errors: list[ToolError] = field(default_factory=list)


@dataclass(frozen=True)
class Overhead(Record):
    """The recorder's own cost since the log began."""

    KIND: ClassVar[str] = "overhead"

    hook_ns: int
    """The time in hooks and in writing: measured for each graph call, plus a calibrated cost of each launch."""
    wall_ns: int
    log_bytes: int
    launches: int
    failures: int
    stats_ns: int | None = None
    """The part of `hook_ns` that reading tensors took on the host; None if no tensor was read."""


@dataclass(frozen=True)
class End(Record):
    """The last record of a process, whose log is complete. If other records of the process follow, an `os.exec…` of the
    process failed."""

    KIND: ClassVar[str] = "end"

    reason: Literal["exit", "detach", "_exit", "exec"]
    """``exit``: the process ended; ``detach``: the recorder was stopped; ``_exit``: the process called `os._exit(0)`;
    ``exec``: another program replaced it by `os.exec…`."""
    monotonic_ns: int
    device_error: str | None = None
    """The error of a CUDA device on which nothing can run any more; the launch ring is kept in this case."""
