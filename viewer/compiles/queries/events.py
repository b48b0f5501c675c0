"""Queries the events of compiles: recompiles, graph breaks, failures and bypassed caches."""

from __future__ import annotations

import re
from typing import NamedTuple

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.ingest.torch_trace.kinds import NO_ID
from stepscope.viewer.ingest.torch_trace.torch_text import is_of_torch
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import basename

_RESUMED = re.compile(r"^torch_dynamo_resume_in_(.+?)_at_(\d+)(?=$| )")
_OF_A_LIBRARY = re.compile(
    r"[/\\](?:(?:site|dist)-packages|lib(?:64)?[/\\]python3\.\d+t?|Python3\d+(?:-\w+)?[/\\]Lib)[/\\]|^<frozen "
)
"""Files of installed packages and of Python's own library."""


class CompileEvent(NamedTuple):
    """An event of one compile."""

    kind: str
    """``recompile``, ``recompile_limit``, ``graph_break``, ``compile_failure`` or ``cache_bypass``."""
    log: int
    rank: int | None
    compile_id: str
    frame: str | None
    status: str
    time_ns: int
    cause: str
    text: str
    file: str | None
    line: int | None
    function: str | None
    code: str | None
    frame_file: str | None
    stack: str | None
    """Stack of the compile as JSON, outermost first. It may lack the frame that called the compiled function."""
    record: int | None
    """Record that reports the event."""
    is_static: bool = False
    """Whether PyTorch makes no size dynamic that has changed, as with ``torch.compile(..., dynamic=False)``."""

    @property
    def source(self) -> SourceLine | None:
        """Return the program line that the event concerns, else the compiled function; None if neither is known."""
        if not self.file or self.line is None:
            return None
        return SourceLine(self.file, self.line, self.function or "", self.code or "")

    @property
    def frame_id(self) -> str:
        """Return the frame's id, ``3`` for the compile id ``3/1``; recompiles of a frame share it."""
        return self.compile_id.rsplit("/", 1)[0]

    @property
    def name(self) -> str:
        """Return the compiled function's name, with the calling program line if it is PyTorch's or a library's."""
        if self.compile_id.endswith(NO_ID) and self.frame is None:
            return "a graph without a compile id"
        caller = self.caller
        called = f", called at {basename(caller[0])}:{caller[1]}" if caller else ""
        return resumed_name(self.frame or f"frame {self.frame_id}") + called

    @property
    def caller(self) -> tuple[str, int] | None:
        """Return the program's line that led to the call of a compiled function that is PyTorch's or a library's."""
        if is_own(self.frame_file or ""):
            return None
        return next(((file, line) for file, line in reversed(self.lines_of_stack) if is_own(file)), None)

    @property
    def is_refused(self) -> bool:
        """Whether the call raised because an operator refused its inputs. Dynamo raises TorchRuntimeError if one fails
        on fake tensors, unless it is to run the function uncompiled (`suppress_errors`)."""
        is_failure = self.kind == "compile_failure" and self.status == "failed"
        return is_failure and self.cause.startswith("TorchRuntimeError")

    @property
    def call(self) -> SourceLine | None:
        """Return the program's line that called the compiled function, or None if it is not known."""
        above = (sql.json_value(self.stack) or [])[:-1]
        found = next((one for one in reversed(above) if is_own(one["file"])), None)
        return SourceLine(found["file"], found["line"], found["function"], found["code"]) if found else None

    @property
    def lines_of_stack(self) -> list[tuple[str, int]]:
        """Return file and line of each frame of the stack."""
        return [(frame["file"], frame["line"]) for frame in sql.json_value(self.stack) or []]


def resumed_name(frame: str) -> str:
    """Return a frame's name, with Dynamo's name for what follows a graph break in words: ``the rest of forward after
    line 12 (model.py:12)``."""
    return _RESUMED.sub(r"the rest of \1 after line \2", frame)


def resumed_line(frame: str | None) -> int | None:
    """Return the line of the graph break after which a frame is the rest of its function; None for other frames."""
    match = _RESUMED.match(frame or "")
    return int(match[2]) if match else None


def list_compile_events(trace: Trace) -> list[CompileEvent]:
    """Return the events of all compiles, ordered by time."""
    found = sql.rows(
        trace,
        "SELECT e.kind, e.log, l.rank, e.compile_id, c.frame, c.status, coalesce(r.time_unix_ns, c.start_unix_ns, 0),"
        " e.cause, e.text, coalesce(e.file, c.file), coalesce(e.line, c.line), coalesce(e.function, c.function),"
        " e.code, c.file, c.stack, e.record,"
        " coalesce(c.is_static, false)"
        " FROM compile_events e JOIN logs l ON l.log = e.log"
        " JOIN compiles c ON c.log = e.log AND c.compile_id = e.compile_id"
        " LEFT JOIN records r ON r.record = e.record ORDER BY 7, e.log, e.record",
    )
    return list(map(CompileEvent._make, found))


def is_own(file: str) -> bool:
    """Return whether the file belongs to the program rather than to PyTorch, Python or an installed library."""
    return not is_of_torch(file) and _OF_A_LIBRARY.search(file) is None


def last_compiles(trace: Trace) -> dict[int, str]:
    """Return the last compile of each log that has no calls after that compile started."""
    found = sql.rows(
        trace,
        "SELECT c.log, max_by(c.compile_id, coalesce(c.start_unix_ns, 1)) FROM compiles c JOIN logs l ON l.log = c.log"
        " GROUP BY c.log, l.unix_ns, l.monotonic_ns"
        " HAVING coalesce(max(coalesce(c.start_unix_ns, 1)) > (SELECT max(k.start_ns) FROM calls k WHERE k.log = c.log)"
        " - l.monotonic_ns + l.unix_ns, true)",
    )
    return dict(found)
