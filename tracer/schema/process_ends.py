"""Records of how a process ended. They are part of `stepscope.tracer.schema.records`, which names them all.

A process that is killed writes nothing any more: `stepscope run`, which waits for the command, writes `process_end`
behind the log of one that failed or left without an `end`, and with ``--crash`` behind every log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

FAILED_CALL = " API call failed at "
"""In the text of an exception from generated C++ code, behind the call that failed."""
CALL_RAISED = "the call raised: "
"""Begins what is known of such an exception beyond its own text."""


@dataclass(frozen=True)
class Frame:
    """A line of source: of the model, or of what an exception went through."""

    file: str
    line: int
    function: str
    code: str


@dataclass(frozen=True)
class UncaughtException:
    """An exception that nothing caught ended the process; `end` follows."""

    KIND: ClassVar[str] = "uncaught_exception"

    type: str
    """``ValueError``; with its module where that is not `builtins`: ``torch.AcceleratorError``."""
    text: str
    """At most 16,000 characters: with TORCH_SHOW_CPP_STACKTRACES=1 it holds the C++ stack. Where a call of generated
    C++ code failed, a line that begins with ``the call raised: `` says by what, if that is known."""
    frames: list[Frame]
    """Outermost first; of a deep stack the last 32."""


@dataclass(frozen=True)
class CrashRun:
    """Which of the runs of `stepscope run --crash` a log is of."""

    run: int
    """From 1."""
    purpose: str
    """``as it is``, ``one launch at a time``, ``values of the suspect``, ``sanity checks``, ``compute-sanitizer``."""
    environment: dict[str, str]
    """Variables that were set for this run."""
    level: str
    kernels: list[str]
    """Kernels of which values were read; empty: of all."""
    tool: list[str] = field(default_factory=list)
    """What stood before the command: ``compute-sanitizer --tool memcheck``."""


@dataclass(frozen=True)
class ToolError:
    """What a tool that the command ran under has found, as compute-sanitizer prints it."""

    text: str
    """``Invalid __global__ write of size 4 bytes``."""
    kernel: str | None
    file: str | None
    """Of the kernel's source."""
    line: int | None
    where: str | None
    """The first time: ``thread (0,0,0) in block (8,0,0)``."""
    details: list[str]
    """The first time: ``Access to 0x83dafb248000 is out of bounds``."""
    times: int = 1


@dataclass(frozen=True)
class ProcessEnd:
    """How a command that was recorded ended, as `stepscope run` saw it."""

    KIND: ClassVar[str] = "process_end"

    pid: int
    """Of the command; other processes of it have logs of their own."""
    exit_code: int | None
    """None: a signal ended it."""
    signal: int | None
    timed_out: bool
    """`stepscope run` ended it: it ran longer than it was to."""
    duration_ns: int
    error_tail: str | None = None
    """The last that it wrote to standard error, at most 16 KiB; None: not kept."""
    crash_run: CrashRun | None = None
    """None: not run with ``--crash``."""
    tool_errors: list[ToolError] = field(default_factory=list)


@dataclass(frozen=True)
class Overhead:
    """The recorder's own cost since the log began."""

    KIND: ClassVar[str] = "overhead"

    hook_ns: int
    """Time in hooks and in writing, measured at graph-call ends plus a calibrated cost per launch."""
    wall_ns: int
    log_bytes: int
    launches: int
    failures: int
    stats_ns: int | None = None
    """The part of `hook_ns` that reading tensors took on the host; None: no tensor was read."""


@dataclass(frozen=True)
class End:
    """Last record of the process itself: the log is complete. Where others of its process follow, it is none: the
    process wanted to become another program, and could not."""

    KIND: ClassVar[str] = "end"

    reason: Literal["exit", "detach", "_exit", "exec"]
    """``_exit``: it left by `os._exit(0)`; ``exec``: another program took its place by `os.exec…`."""
    monotonic_ns: int
    device_error: str | None = None
    """The error that a CUDA device was in, after which nothing runs on it: the launch ring is kept then."""
