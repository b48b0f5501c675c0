"""What happened to compiles: recompiles, graph breaks, failures, bypassed caches."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.queries import sql
from stepscope.viewer.queries.rows_of_graphs import SourceLine
from stepscope.viewer.store.open import Trace


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
        return self.frame or f"frame {self.frame_id}"


def list_compile_events(trace: Trace) -> list[CompileEvent]:
    """Events of all compiles, in order of time."""
    found = sql.rows(
        trace,
        "SELECT e.kind, e.log, l.rank, e.compile_id, c.frame, c.status, coalesce(r.time_unix_ns, c.start_unix_ns, 0),"
        " e.cause, e.text, coalesce(e.file, c.file), coalesce(e.line, c.line), coalesce(e.function, c.function),"
        " e.code"
        " FROM compile_events e JOIN logs l ON l.log = e.log"
        " JOIN compiles c ON c.log = e.log AND c.compile_id = e.compile_id"
        " LEFT JOIN records r ON r.record = e.record ORDER BY 7, e.log, e.record",
    )
    return [*map(CompileEvent._make, found)]


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
