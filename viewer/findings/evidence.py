"""What the modules of findings share: events of compiles, pages, source lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote

from viewer.findings.rules import rule_of as rule_of
from viewer.queries import sql
from viewer.queries.rows import Finding, SourceLine
from viewer.queries.runs import list_runs
from viewer.store.open import Trace

Timed = tuple[int, Finding]
"""(unix ns, finding): when it happened, to sort by."""

MOST_EXAMPLES = 8
T = TypeVar("T")


@dataclass(frozen=True)
class CompileEvent:
    """Something that happened to one compile."""

    log: int
    rank: int | None
    compile_id: str
    frame: str | None
    status: str
    time_ns: int
    cause: str
    text: str
    source: SourceLine | None
    """The line of the user's program that it is about, else the compiled function."""

    @property
    def frame_id(self) -> str:
        """``3`` of ``3/1``: the frame that is compiled anew for each of its compile ids."""
        return self.compile_id.rsplit("/", 1)[0]

    @property
    def name(self) -> str:
        return self.frame or f"frame {self.frame_id}"


class Evidence:
    """What several findings look at, read once."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.runs = list_runs(trace)
        self._events = grouped(_compile_events(trace), lambda pair: pair[0])

    def compile_events(self, kind: str) -> list[CompileEvent]:
        """Events of one kind, in order of time."""
        return [event for group in self._events if group[0][0] == kind for _, event in group]


def _compile_events(trace: Trace) -> list[tuple[str, CompileEvent]]:
    found = sql.rows(
        trace,
        "SELECT e.kind, e.log, l.rank, e.compile_id, c.frame, c.status, coalesce(r.time_unix_ns, c.start_unix_ns, 0),"
        " e.cause, e.text, coalesce(e.file, c.file), coalesce(e.line, c.line), coalesce(e.function, c.function),"
        " e.code"
        " FROM compile_events e JOIN logs l ON l.log = e.log"
        " JOIN compiles c ON c.log = e.log AND c.compile_id = e.compile_id"
        " LEFT JOIN records r ON r.record = e.record ORDER BY 7, e.log, e.record",
    )
    return [(row[0], CompileEvent(*[*row[1:9], _source(*row[9:])])) for row in found]


def _source(file: str | None, line: int | None, function: str | None, code: str | None) -> SourceLine | None:
    return SourceLine(file, line, function or "", code or "") if file and line is not None else None


def grouped(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Groups of equal `key` in the order in which they first appear."""
    groups: defaultdict[Hashable, list[T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return list(groups.values())


def compile_page(log: int, compile_id: str) -> str:
    return f"/compile/{quote(compile_id.replace('/', '_'), safe='!')}?log={log}"


def times(count: int) -> str:
    """`` (3 times)``, nothing for one."""
    return f" ({count:,} times)" if count > 1 else ""
