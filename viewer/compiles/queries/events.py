"""What happened to compiles: recompiles, graph breaks, failures, bypassed caches."""

from __future__ import annotations

import re
from typing import NamedTuple

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.ingest.torch_trace.kinds import NO_ID
from stepscope.viewer.ingest.torch_trace.torch_text import is_of_torch
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import basename

_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]")


class CompileEvent(NamedTuple):
    """Something that happened to one compile."""

    kind: str
    """recompile, recompile_limit, graph_break, compile_failure or cache_bypass."""
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
    """Of the compile, as JSON, outermost first; None: the compiled function is the program's own."""

    @property
    def source(self) -> SourceLine | None:
        """The line of the user's program that it is about, else the compiled function."""
        if not self.file or self.line is None:
            return None
        return SourceLine(self.file, self.line, self.function or "", self.code or "")

    @property
    def frame_id(self) -> str:
        """``3`` of ``3/1``: the frame that is compiled anew for each of its compile ids."""
        return self.compile_id.rsplit("/", 1)[0]

    @property
    def name(self) -> str:
        """The compiled function; of one of PyTorch or of a library also the line of the program that called it."""
        if self.compile_id.endswith(NO_ID) and self.frame is None:
            return "a graph without a compile id"
        caller = next((frame for frame in reversed(sql.json_value(self.stack) or []) if _is_own(frame["file"])), None)
        called = f", called at {basename(caller['file'])}:{caller['line']}" if caller else ""
        return (self.frame or f"frame {self.frame_id}") + called


def list_compile_events(trace: Trace) -> list[CompileEvent]:
    """Events of all compiles, in order of time."""
    found = sql.rows(
        trace,
        "SELECT e.kind, e.log, l.rank, e.compile_id, c.frame, c.status, coalesce(r.time_unix_ns, c.start_unix_ns, 0),"
        " e.cause, e.text, coalesce(e.file, c.file), coalesce(e.line, c.line), coalesce(e.function, c.function),"
        " e.code, c.file, c.stack"
        " FROM compile_events e JOIN logs l ON l.log = e.log"
        " JOIN compiles c ON c.log = e.log AND c.compile_id = e.compile_id"
        " LEFT JOIN records r ON r.record = e.record ORDER BY 7, e.log, e.record",
    )
    events = map(CompileEvent._make, found)
    return [event._replace(stack=None) if _is_own(event.frame_file or "") else event for event in events]


def _is_own(file: str) -> bool:
    """Of the program, neither of PyTorch nor of an installed library."""
    return not is_of_torch(file) and _INSTALLED.search(file) is None


def last_compiles(trace: Trace) -> dict[int, str]:
    """log -> its last compile, for logs without calls after that compile began."""
    found = sql.rows(
        trace,
        "SELECT c.log, max_by(c.compile_id, coalesce(c.start_unix_ns, 1)) FROM compiles c JOIN logs l ON l.log = c.log"
        " GROUP BY c.log, l.unix_ns, l.monotonic_ns"
        " HAVING coalesce(max(coalesce(c.start_unix_ns, 1)) > (SELECT max(k.start_ns) FROM calls k WHERE k.log = c.log)"
        " - l.monotonic_ns + l.unix_ns, true)",
    )
    return dict(found)
