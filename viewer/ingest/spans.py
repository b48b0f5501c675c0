"""Pairs of chromium events -> spans with their depth."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from viewer.ingest.lenient_json import int64, text

_LATEST_US = 2**53
_DEEPEST = 1000


@dataclass(frozen=True, slots=True)
class Span:
    name: str
    compile_id: str | None
    start_ns: int
    """Unix ns."""
    duration_ns: int


class Spans:
    """Open spans per thread; a span whose end is missing makes no row: how long it took is not known."""

    def __init__(self, log: int) -> None:
        self._log = log
        self._open: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
        self.rows: list[tuple[Any, ...]] = []

    def read(self, event: dict[str, Any]) -> Span | None:
        """The span that `event` ends, if it ends one."""
        phase, stamp, name = event.get("ph"), event.get("ts"), text(event.get("name"))
        thread = int64(event.get("tid")) or 0
        if name is None or not isinstance(stamp, (int, float)) or not 0 <= stamp < _LATEST_US:
            return None
        stamp_ns = int(stamp * 1000)
        stack = self._open[thread]
        if phase == "B" and len(stack) < _DEEPEST:
            stack.append((name, stamp_ns))
        elif phase == "E":
            return self._end(stack, name, stamp_ns, thread, event)
        return None

    def _end(
        self, stack: list[tuple[str, int]], name: str, end_ns: int, thread: int, event: dict[str, Any]
    ) -> Span | None:
        depth = next((i for i in range(len(stack) - 1, -1, -1) if stack[i][0] == name), None)
        if depth is None:
            return None
        start_ns = stack[depth][1]
        del stack[depth:]
        arguments = event.get("args")
        compile_id = text(arguments.get("compile_id")) if isinstance(arguments, dict) else None
        span = Span(name, None if compile_id == "None" else compile_id, start_ns, max(0, end_ns - start_ns))
        self.rows.append((self._log, name, span.compile_id, thread, depth, start_ns, span.duration_ns))
        return span
