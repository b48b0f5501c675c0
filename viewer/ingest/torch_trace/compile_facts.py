"""Reads compilation metrics, cache lookups, symbols and draft export records into rows."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import Any

from stepscope.viewer.ingest.bounds import whole_number
from stepscope.viewer.ingest.lenient_json import dumps, text
from stepscope.viewer.ingest.reader import LogRecord
from stepscope.viewer.ingest.rows import IndexRows
from stepscope.viewer.ingest.torch_trace.event_kinds import EVENTS

METRICS_EVENTS = tuple(name for name, kind in EVENTS.items() if kind.has_metrics)
_OF_BACKWARDS = ("bwd", "aot_autograd_backward")
SKIP_REASON, CUDAGRAPHS = "cudagraph_skip_reason", "triton.cudagraphs"
_SETTINGS = frozenset(
    ["dynamo_config", "inductor_config", "compiler_config", "functorch_config", "stack_trace", "exception_stack_trace"]
)
_LONG = frozenset([SKIP_REASON, "fail_reason", "recompile_reason"])
_LONGEST, _LONGEST_TEXT = 4000, 400
_MOST_FIELDS = 300
_CUDAGRAPHS = re.compile(r'"triton\.cudagraphs": (true|false)')
_LOOKUP = re.compile(r"(fx_graph|aotautograd|fx_graph_bundled|dynamo|precompile)_cache_(\w+)$")
_PROFILE = re.compile(r"(get|put)_((?:\w+_)?code_state)$")
_CACHES = {"fx_graph_bundled": "bundled"}
_STATES = frozenset(["hit", "miss", "bypass", "saved"])
_MOST_FRAMES = 200
_METRIC_COLUMNS = ("record", "name", "number", "text")
_EXACT = 2**53
ResolveFile = Callable[[object], str]


def phase_of_metrics(event: str) -> str:
    """Return whether compilation metrics of this event are about the forward or the backward."""
    return "backward" if event.startswith(_OF_BACKWARDS) else "forward"


def cache_of(name: str) -> tuple[str, str] | None:
    """Return the cache that an artifact's name is about and the result of its lookup; None if it is about no cache."""
    found = _LOOKUP.match(name)
    if found is not None:
        return _CACHES.get(found[1], found[1]), found[2]
    found = _PROFILE.match(name)
    return ("profile", "hit" if found[1] == "get" else "saved") if found is not None else None


class CompilationRows:
    """Reads these records of one log."""

    def __init__(self, log: int, rows: IndexRows) -> None:
        self.log, self.rows = log, rows
        self._exports: list[tuple[int, str, dict[str, Any]]] = []
        """(record, event, value) of each."""
        self._readers: Mapping[str, Callable[[LogRecord, dict[str, Any]], None]] = {
            **dict.fromkeys(METRICS_EVENTS, self._metrics),
            **dict.fromkeys(_EXPORTS, self._export),
            "create_symbol": self._symbol,
        }

    def reader_of(self, event: str) -> Callable[[LogRecord], None] | None:
        """Return what reads records of this event, or None."""
        reader = self._readers.get(event)
        return None if reader is None else partial(_read_object, reader)

    def finish(self, file_name: ResolveFile) -> None:
        """Add the rows with file names, which `file_name` looks up in the string tables."""
        for record, event, value in self._exports:
            subject, result, reason, node = _EXPORTS[event]
            self.rows.add(
                "export_events",
                record=record,
                log=self.log,
                event=event,
                subject=text(value.get(subject)),
                result=text(value.get(result)),
                reason=text(value.get(reason)),
                node=whole_number(value.get(node)),
                stack=_stack(value.get("user_stack") or value.get("stack"), file_name),
            )

    def look_up(self, record: LogRecord, payload: Any) -> None:
        """Add a row for an artifact about a cache. `payload` is None if it could not be read."""
        found = cache_of(record.name or "")
        if found is None:
            return
        cache, state = found
        value = payload if isinstance(payload, dict) else {}
        if state not in _STATES:
            state = text(value.get("cache_state")) or state
        components = value.get("components")
        self.rows.add(
            "cache_lookups",
            record=record.record,
            log=self.log,
            compile_id=record.compile_id,
            cache=cache,
            state=state,
            detail=text(value.get("cache_status_detailed")),
            key=text(value.get("key")),
            reason=_reason(value),
            time_saved_ns=_time_saved(value),
            components=len(components) if isinstance(components, list) and components else None,
        )

    def _metrics(self, record: LogRecord, value: dict[str, Any]) -> None:
        number, rows = record.record, list[tuple[int, str, float | None, str | None]]()
        add = rows.append
        for name, item in islice(value.items(), _MOST_FIELDS):
            if item is None:
                if name == SKIP_REASON:
                    add((number, name, None, None))
            elif type(item) is int and -_EXACT < item < _EXACT:
                add((number, name, float(item), None))
            elif item is True or item is False:
                add((number, name, float(item), "true" if item else "false"))
            elif name not in _SETTINGS:
                add((number, name, *_number_and_text(name, item)))
        setting = _CUDAGRAPHS.search(text(value.get("inductor_config")) or "")
        if setting is not None:
            add((number, CUDAGRAPHS, float(setting[1] == "true"), setting[1]))
        self.rows.extend_rows("metrics", _METRIC_COLUMNS, rows)

    def _symbol(self, record: LogRecord, value: dict[str, Any]) -> None:
        self.rows.add(
            "symbols",
            record=record.record,
            log=self.log,
            compile_id=record.compile_id,
            symbol=text(value.get("symbol")),
            source=text(value.get("source")),
            value=text(value.get("val")),
            value_range=text(value.get("vr")),
        )

    def _export(self, record: LogRecord, value: dict[str, Any]) -> None:
        if value.get("user_stack"):  # torch's own stack is most of the record
            value = {name: item for name, item in value.items() if name != "stack"}
        self._exports.append((record.record, record.event, value))


_EXPORTS: Mapping[str, tuple[str, str, str, str]] = {
    "propagate_real_tensors": ("expr", "result", "", ""),
    "propagate_real_tensors_provenance": ("expr", "result", "", "expr_node_id"),
    "guard_on_data_dependent_error": ("expr", "", "", "expr_id"),
    "guard_added": ("expr", "", "prefix", "expr_node_id"),
    "missing_fake_kernel": ("op", "", "reason", ""),
    "mismatched_fake_kernel": ("op", "", "reason", ""),
    "expression_created": ("result", "method", "", "result_id"),
    "create_unbacked_symbol": ("symbol", "vr", "", "node_id"),
    "exported_program": ("", "", "", ""),
}
"""Event -> names of the fields with its subject, result, reason and node."""


def _read_object(reader: Callable[[LogRecord, dict[str, Any]], None], record: LogRecord) -> None:
    if isinstance(record.value, dict):
        reader(record, record.value)


def _number_and_text(name: str, item: Any) -> tuple[float | None, str | None]:
    longest = _LONGEST if name in _LONG else _LONGEST_TEXT
    if isinstance(item, (int, float)):
        return (float(item), None) if abs(item) < 2**1000 and math.isfinite(item) else (None, str(item)[:longest])
    if isinstance(item, str):
        return None, item[:longest]
    if isinstance(item, list):
        return float(len(item)), ", ".join(str(one) for one in item[:20])[:longest] or None
    return None, dumps(item)[:longest] if item is not None else None


def _reason(value: dict[str, Any]) -> str | None:
    for name in ("cache_bypass_reason", "error", "reason", "missing_backend"):
        if isinstance(value.get(name), str):
            return str(value[name])
    return None


def _time_saved(value: dict[str, Any]) -> int | None:
    for name, unit in (("time_saved_ns", 1), ("time_saved_ms", 1_000_000)):
        saved = value.get(name)
        if isinstance(saved, (int, float)) and not isinstance(saved, bool) and 0 <= saved < 2**53:
            return round(saved * unit) if saved * unit < 2**63 else None
    return None


def _stack(frames: Any, file_name: ResolveFile) -> str | None:
    if not isinstance(frames, list):
        return None
    return dumps(
        [
            {
                "file": file_name(frame.get("filename")),
                "line": whole_number(frame.get("line")) or 0,
                "function": text(frame.get("name")) or "",
                "code": text(frame.get("loc")) or "",
            }
            for frame in frames[-_MOST_FRAMES:]
            if isinstance(frame, dict)
        ]
    )
