"""Provides what the modules of findings share: events of compiles, pages, source lines."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import quote

from stepscope.viewer.compiles.queries.events import CompileEvent, list_compile_events
from stepscope.viewer.graphs.queries.program_names import program_names
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.overview.queries.damage import whole_log_problems
from stepscope.viewer.overview.queries.runs import has_exports, has_recorder, list_runs
from stepscope.viewer.overview.rows import Finding, ProofLink
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import basename, known_name
from stepscope.viewer.values.queries.buffers import buffer_names
from stepscope.viewer.web.addresses import slug

Timed = tuple[int, Finding]
"""(unix ns, finding), to sort findings by time."""

MOST_EXAMPLES, MOST_CALLERS = 8, 3
_MOST_NAMES = 4
_ADDRESS = re.compile(r"\d{6,}")
T = TypeVar("T")


class Evidence:
    """Data that several findings use, read once."""

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
        """(log, reason, text) of each log that was left out or whose run record is missing."""
        return whole_log_problems(self.trace)

    def rank_of(self, log: int) -> int | None:
        """Return the rank whose process wrote a log, or None if it is not known."""
        return next((run.rank for run in self.runs if run.log == log), None)

    def compile_events(self, kind: str) -> list[CompileEvent]:
        """Return the events of one kind in order of time."""
        return [event for event in self._events if event.kind == kind]


def grouped(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Group items of equal `key` in the order in which the keys first appear."""
    groups: defaultdict[Hashable, list[T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return list(groups.values())


def leak_key(
    graph: Hashable, kind: object, holders: Sequence[str], source: SourceLine | None, buffer: Hashable
) -> Hashable:
    """Return a key for buffers with the same holders and line; without holders each buffer has its own."""
    line = (source.file, source.line) if source is not None else None
    return (graph, kind, tuple(sorted(holders)), line) if holders else (graph, kind, buffer)


def program_name(trace: Trace, graph: int, name: str) -> str:
    """Return an input's name in the program and in the graph, ``self.head.weight (primals_3)``, or only the latter."""
    known = program_names(trace, graph).get(name)
    if known is None or known.name is None or name.startswith("buf") or known.kind in (None, "output", "size"):
        return name
    return known_name(name, known.name)


def open_launch(launch: int) -> ProofLink:
    """Return the link to a launch."""
    return ProofLink(f"open launch {launch}", f"/launches/{launch}")


def open_buffer(trace: Trace, graph: int, buffer: str) -> list[ProofLink]:
    """Return the link to a buffer, or nothing if no launch of the graph uses it, so that it has no page."""
    known = buffer in buffer_names(trace, graph)
    return [ProofLink(f"open {buffer}", f"/graphs/{graph}/buffers/{slug(buffer)}")] if known else []


def names_text(names: Sequence[str], count: int | None = None) -> str:
    """Return names like ``buf0``, ``buf0, buf1 and buf2`` or ``buf0, buf1, buf2, buf3 and 7 more``; `count` is the
    number of all if `names` are only the first."""
    more = max(len(names), count or 0) - min(len(names), _MOST_NAMES)
    shown = [*names[:_MOST_NAMES], f"{more:,} more"] if more > 0 else names
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def attributes(row: object, *names: str) -> dict[str, Any]:
    """Return the given attributes of a row by name."""
    return {name: getattr(row, name) for name in names}


def buffers_table(rows: Sequence[object], *columns: str) -> list[dict[str, Any]]:
    """Return the given attributes of each row; nothing for a single row, which the finding itself describes."""
    return [attributes(row, *columns) for row in rows] if len(rows) > 1 else []


def rule_of(docstring: str | None) -> str:
    """Return a module's docstring as one line, which is the rule of its findings."""
    return " ".join((docstring or "").split())


def compile_page(log: int, compile_id: str) -> str:
    return f"/compile/{quote(compile_id.replace('/', '_'), safe='!')}?log={log}"


def recompiles_page(event: CompileEvent) -> str:
    """Return the address of the guards and recompiles of the frame of `event`."""
    frame = quote(event.frame_id, safe="!:")
    return f"/recompiles?log={event.log}&frame={frame}"


def place_of(event: CompileEvent) -> dict[str, Any]:
    """Return the page, the rank, the source line and the log of a finding about the compile of `event`."""
    return {"page": compile_page(event.log, event.compile_id), **attributes(event, "rank", "source", "log")}


def called_at(lines: Iterable[SourceLine]) -> list[str]:
    """Return a line of proof for each of the first lines of the program that called something."""
    places = ((f"{basename(one.file)}:{one.line}", one.code) for one in islice(lines, MOST_CALLERS))
    return [f"It was called at {place}{f': {code}' if code else ''}" for place, code in places]


def as_subject(name: str) -> str:
    """Return the name of a frame as the subject of a sentence, with a comma after the place that called it."""
    return f"{name}," if ", called at " in name else name


def alike_in_logs(groups: Iterable[list[CompileEvent]]) -> list[list[list[CompileEvent]]]:
    """Join groups of several logs, such as those of ranks, with the same frame and causes. Addresses of objects are
    ignored, because they differ between processes."""

    def key(group: list[CompileEvent]) -> Hashable:
        first = group[0]
        causes = sorted(_ADDRESS.sub("", event.cause) for event in group)
        return first.frame or (first.log, first.frame_id), first.file, first.line, first.status, tuple(causes)

    return grouped(groups, key)


def in_logs(count: int) -> str:
    """Return text like `` in 3 logs``, or "" for one log."""
    return f" in {count:,} logs" if count > 1 else ""


def logs_of(count: int) -> dict[str, int]:
    """Return the evidence of a finding in several logs."""
    return {"logs": count} if count > 1 else {}


def times(count: int) -> str:
    """Return text like `` (3 times)``, or "" for once."""
    return f" ({count:,} times)" if count > 1 else ""
