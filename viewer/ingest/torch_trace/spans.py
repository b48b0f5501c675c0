"""Converts pairs of chromium events to spans with their depth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stepscope.viewer.ingest.bounds import whole_number
from stepscope.viewer.ingest.clock import unix_ns_of
from stepscope.viewer.ingest.lenient_json import dumps
from stepscope.viewer.ingest.rows import IndexRows

_DEEPEST = 1000
OUTER_SPANS = ("dynamo", "entire_frame_compile")
"""Names of the span around a complete compile, in newer and in older versions of PyTorch."""
_LONGEST_ARGUMENT = 200
_SPAN_COLUMNS = ("log", "name", "compile_id", "thread", "depth", "start_unix_ns", "duration_ns", "self_ns")
_MARK_COLUMNS = ("log", "name", "compile_id", "thread", "depth", "unix_ns", "kind", "arguments")


@dataclass(frozen=True, slots=True)
class CompileSpan:
    name: str
    compile_id: str | None
    start_ns: int
    """Start in unix ns."""
    duration_ns: int


@dataclass(slots=True)
class _Open:
    name: str
    depth: int
    start_ns: int
    compile_id: str | None
    inner_ns: int = 0
    """Time in spans directly within this one."""
    compiles: str | None = None
    """Id of the compile within this span, which has no id of its own."""


class Spans:
    """Matches begins and ends of spans per thread. A span without an end becomes a mark like an instant event."""

    def __init__(self, log: int, prefix: str = "") -> None:
        """`prefix` is added to compile ids."""
        self._log, self.prefix = log, prefix
        self._open: defaultdict[int, list[_Open]] = defaultdict(list)
        self._rows: list[tuple[int, str, str | None, int, int, int, int, int]] = []
        self._marks: list[tuple[int, str, str | None, int, int, int, str, str | None]] = []

    def read(self, event: dict[str, Any]) -> CompileSpan | None:
        """Return the span that `event` ends if it is in `OUTER_SPANS` or the outermost of a compile without an id."""
        name, stamp_ns = event.get("name"), unix_ns_of(event.get("ts"))
        if type(name) is not str or stamp_ns is None:
            return None
        phase, thread = event.get("ph"), whole_number(event.get("tid")) or 0
        stack = self._open[thread]
        if phase == "B" and len(stack) < _DEEPEST:
            stack.append(_Open(name, len(stack), stamp_ns, self._compile_id(event)))
        elif phase == "E":
            return self._end(stack, name, stamp_ns, thread, event)
        elif phase in ("i", "I"):
            compile_id, arguments = self._compile_id(event), _arguments(event)
            self._add_mark(name, compile_id, thread, len(stack), stamp_ns, "instant", arguments)
        return None

    def note_compile(self, compile_id: str) -> None:
        """Assign the open spans around a record of a compile without an id to that compile."""
        for stack in self._open.values():
            if stack and stack[0].compile_id is None:
                stack[0].compiles = compile_id

    def in_flight(self) -> dict[str, str]:
        """Return the innermost open span of each compile whose outer span is open."""
        return {
            one.compile_id: stack[-1].name
            for stack in self._open.values()
            for one in stack
            if one.compile_id is not None and one.name in OUTER_SPANS
        }

    def ended(self) -> Iterator[CompileSpan]:
        """Yield all spans that have ended."""
        for _, name, compile_id, _, _, start_ns, duration_ns, _ in self._rows:
            yield CompileSpan(name, compile_id, start_ns, duration_ns)

    def finish(self, rows: IndexRows) -> None:
        """Turn all spans that are still open into marks, and add the rows."""
        for thread, stack in self._open.items():
            self._never_ended(thread, stack)
        rows.extend_rows("spans", _SPAN_COLUMNS, self._rows)
        rows.extend_rows("span_marks", _MARK_COLUMNS, self._marks)

    def _end(
        self, stack: list[_Open], name: str, end_ns: int, thread: int, event: dict[str, Any]
    ) -> CompileSpan | None:
        place = len(stack) - 1
        while place >= 0 and stack[place].name != name:
            place -= 1
        if place < 0:
            return None
        # Spans of other threads have the number of the main one, so one that began later may still be open.
        begun = stack.pop(place)
        if place == 0:
            self._never_ended(thread, stack)
        duration_ns = max(0, end_ns - begun.start_ns)
        if place:
            stack[place - 1].inner_ns += duration_ns
        compile_id, start_ns = self._compile_id(event), begun.start_ns
        self_ns = max(0, duration_ns - begun.inner_ns)
        self._rows.append((self._log, name, compile_id, thread, begun.depth, start_ns, duration_ns, self_ns))
        if name in OUTER_SPANS:
            return CompileSpan(name, compile_id, start_ns, duration_ns)
        return CompileSpan(name, begun.compiles, start_ns, duration_ns) if begun.compiles else None

    def _compile_id(self, event: dict[str, Any]) -> str | None:
        compile_id = compile_id_of(event)
        return self.prefix + compile_id if compile_id and self.prefix else compile_id

    def _never_ended(self, thread: int, stack: list[_Open]) -> None:
        for one in stack:
            self._add_mark(one.name, one.compile_id, thread, one.depth, one.start_ns, "unfinished", None)
        stack.clear()

    def _add_mark(
        self, name: str, compile_id: str | None, thread: int, depth: int, unix_ns: int, kind: str, arguments: str | None
    ) -> None:
        self._marks.append((self._log, name, compile_id, thread, depth, unix_ns, kind, arguments))


def compile_id_of(event: dict[str, Any]) -> str | None:
    """Return the compile id that PyTorch wrote in an event, or None."""
    arguments = event.get("args")
    compile_id = arguments.get("compile_id") if type(arguments) is dict else None
    return None if compile_id == "None" or type(compile_id) is not str else compile_id


def _arguments(event: dict[str, Any]) -> str | None:
    """Return the short arguments of an event as JSON, or None if there are none."""
    arguments = event.get("args")
    if not isinstance(arguments, dict):
        return None
    short = {
        name: value
        for name, value in arguments.items()
        if isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= _LONGEST_ARGUMENT)
    }
    return dumps(short) if short else None
