"""Views of compilation metrics, and of events of the compile's timeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stepscope.viewer.records.rows import Block, Cell, CodeView, Fact, FactsView, NoteView, TextView
from stepscope.viewer.records.views.json_views import json_blocks
from stepscope.viewer.records.views.measures import is_short, is_time, value_of
from stepscope.viewer.records.views.record import LoggedRecord, pretty_json
from stepscope.viewer.records.views.shape import Odd, as_dict, payload_object, shown

_CONFIG = ("config", "experiment", "feature_", "compliant", "_version", "specialize_float", "inline_inbuilt")
_GROUPS: tuple[tuple[str, Callable[[str, Any], bool]], ...] = (
    ("Failures", lambda name, value: name.startswith(("fail_", "restart_", "exception", "stack_trace", "recompile"))),
    (
        "Which compile",
        lambda name, value: name.startswith(("co_", "compile_id", "frame_", "is_forward", "job_", "log_")),
    ),
    ("Settings", lambda name, value: any(word in name for word in _CONFIG)),
    ("Caches", lambda name, value: "cache" in name or "precompile" in name),
    ("Times", lambda name, value: is_time(name)),
    ("Counts", lambda name, value: isinstance(value, int | float) and not isinstance(value, bool)),
)
_REST = "Others"
_ORDER = ("Which compile", "Failures", "Times", "Counts", "Caches", _REST, "Settings")


def metrics(record: LoggedRecord) -> list[Block]:
    """Show the fields of a compile's metrics by group, and the names of fields without a value."""
    value = as_dict(record.metadata)
    if not value:
        raise Odd("it contains no metrics")
    groups: dict[str, list[Fact]] = {name: [] for name in _ORDER}
    long: list[Block] = []
    for name, item in value.items():
        if item in (None, "", [], {}):
            continue
        if is_short(item):
            groups[_group(name, item)].append(Fact(name, value_of(name, item)))
        else:
            long += _long(name, item)
    blocks: list[Block] = [FactsView(facts, title) for title, facts in groups.items() if facts]
    empty = [name for name, item in value.items() if item in (None, "", [], {})]
    if empty:
        long.append(NoteView(f"Not set by this compile: {', '.join(empty)}."))
    return blocks + long


def _group(name: str, value: Any) -> str:
    return next((title for title, belongs in _GROUPS if belongs(name, value)), _REST)


def _long(name: str, item: Any) -> list[Block]:
    if isinstance(item, str) and item.lstrip()[:1] in ("{", "["):
        return [CodeView(pretty_json(item), "json", name)]
    if isinstance(item, str):
        return [TextView(item, name)]
    return json_blocks(item, name)


_PHASES = {
    "B": "beginning of a span",
    "E": "end of a span",
    "X": "span",
    "i": "event",
    "I": "event",
    "C": "counter",
    "M": "metadata",
    "s": "begin of a flow",
    "f": "end of a flow",
}


def chromium_event(record: LoggedRecord) -> list[Block]:
    """Show an event of the compile's timeline."""
    value = payload_object(record.payload)
    phase, moment = value.get("ph"), value.get("ts")
    facts = [Fact("name", Cell(shown(value.get("name", "")))), Fact("kind", Cell(_phase(phase)))]
    facts.append(Fact("at", value_of("start_time_us", moment)))
    if value.get("dur") is not None:
        facts.append(Fact("duration", value_of("duration_us", value.get("dur"))))
    facts += [Fact(name, value_of(name, value[name])) for name in ("cat", "pid", "tid") if value.get(name) is not None]
    arguments = value.get("args")
    return [FactsView(facts), *(json_blocks(arguments, "args") if arguments else [])]


def _phase(phase: Any) -> str:
    name = _PHASES.get(phase) if isinstance(phase, str) else None
    return f"{name} ({phase})" if name else shown(phase)
