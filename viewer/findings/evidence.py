"""What the modules of findings share: events of compiles, pages, source lines."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import quote

from stepscope.viewer.compiles.queries.events import CompileEvent, list_compile_events
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.overview.queries.damage import whole_log_problems
from stepscope.viewer.overview.queries.runs import has_exports, has_recorder, list_runs
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace

Timed = tuple[int, Finding]
"""(unix ns, finding): when it happened, to sort by."""

MOST_EXAMPLES = 8
_MOST_NAMES = 4
_ADDRESS = re.compile(r"\d{6,}")
T = TypeVar("T")


class Evidence:
    """What several findings look at, read once."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.runs = list_runs(trace)
        self.is_recorded = has_recorder(trace)
        self.has_exports = has_exports(trace)

    @cached_property
    def _events(self) -> list[CompileEvent]:
        return list_compile_events(self.trace)

    @cached_property
    def unread_logs(self) -> list[tuple[int, str, str]]:
        """(log, reason, text) of each that was left out, or of which nothing says what it is of."""
        return whole_log_problems(self.trace)

    def compile_events(self, kind: str) -> list[CompileEvent]:
        """Events of one kind, in order of time."""
        return [event for event in self._events if event.kind == kind]


def grouped(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Groups of equal `key` in the order in which they first appear."""
    groups: defaultdict[Hashable, list[T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return list(groups.values())


def one_leak(
    graph: Hashable, kind: object, holders: Sequence[str], source: SourceLine | None, buffer: Hashable
) -> Hashable:
    """The same for buffers that the same holders keep and that one line of the model made; each buffer of which nothing
    is known to hold it stands alone."""
    line = (source.file, source.line) if source is not None else None
    return (graph, kind, tuple(sorted(holders)), line) if holders else (graph, kind, buffer)


def names_text(names: Sequence[str]) -> str:
    """``buf0, buf1 and 7 more``."""
    shown = ", ".join(names[:_MOST_NAMES])
    return f"{shown} and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else shown


def buffers_table(rows: Sequence[object], *columns: str) -> list[dict[str, Any]]:
    """Those attributes of each; nothing for one row, of which the finding itself tells."""
    return [{name: getattr(row, name) for name in columns} for row in rows] if len(rows) > 1 else []


def rule_of(docstring: str | None) -> str:
    """A module's docstring as one line: the rule, to be shown beside what it found."""
    return " ".join((docstring or "").split())


def compile_page(log: int, compile_id: str) -> str:
    return f"/compile/{quote(compile_id.replace('/', '_'), safe='!')}?log={log}"


def alike_in_logs(groups: Iterable[list[CompileEvent]]) -> list[list[list[CompileEvent]]]:
    """Groups that are the same in several logs, as of ranks: of the same frame, for the same causes. Addresses of
    objects, which each process has others of, are not looked at."""

    def key(group: list[CompileEvent]) -> Hashable:
        first = group[0]
        causes = sorted(_ADDRESS.sub("", event.cause) for event in group)
        return first.frame or (first.log, first.frame_id), first.file, first.line, first.status, tuple(causes)

    return grouped(groups, key)


def in_logs(count: int) -> str:
    """`` in 3 logs``, nothing for one."""
    return f" in {count:,} logs" if count > 1 else ""


def logs_of(count: int) -> dict[str, int]:
    """Evidence of a finding in several logs."""
    return {"logs": count} if count > 1 else {}


def times(count: int) -> str:
    """`` (3 times)``, nothing for one."""
    return f" ({count:,} times)" if count > 1 else ""
