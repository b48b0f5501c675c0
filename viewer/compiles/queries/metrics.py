"""Queries the compilation metrics of all compiles as a table whose columns and order can be chosen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from stepscope.viewer.ingest.torch_trace.compile_facts import METRICS_EVENTS, phase_of_metrics
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

Group = Literal["time", "cache", "size", "count", "failure", "other"]
Unit = Literal["ns", "bytes", "count", "text"]
_KINDS = {event: "runtime" if event.endswith("_runtime") else phase_of_metrics(event) for event in METRICS_EVENTS}
KINDS = ("forward", "backward", "runtime")
_PREFERRED = (
    ("duration_us", "entire_frame_compile_time_s"),
    ("aot_autograd_cumulative_compile_time_us", "backend_compile_time_s"),
    ("inductor_cumulative_compile_time_us", "inductor_compile_time_s"),
    ("inductor_code_gen_cumulative_compile_time_us", "code_gen_time_s"),
    ("triton_compile_time_us",),
    ("dynamo_compile_time_before_restart_us", "dynamo_time_before_restart_s"),
    ("graph_op_count",),
    ("guard_count",),
    ("cache_size",),
    ("inductor_fx_local_cache_hit_count",),
    ("inductor_fx_local_cache_miss_count",),
    ("restart_reasons",),
    ("fail_type",),
)
_NOT_ADDED = frozenset(
    [
        "start_time",
        "start_time_us",
        "end_time_us",
        "log_format_version",
        "co_firstlineno",
        "fail_user_frame_lineno",
        "cache_size",
        "accumulated_cache_size",
        "remote_cache_version",
        "num_graph_breaks",
    ]
)
"""Metrics without a meaningful sum: timestamps, line numbers, and counts that already cover several compiles."""
_UNITS = (
    ("_time_us", 1e3),
    ("_us", 1e3),
    ("_time_ms", 1e6),
    ("_time_s", 1e9),
    ("_saved_s", 1e9),
    ("_overhead_s", 1e9),
    ("_restart_s", 1e9),
)
_STAMPS = frozenset(["start_time", "start_time_us", "end_time_us"])
_BASE_SORTS = {"record": "r.record", "compile_id": "r.log, r.compile_id", "frame": "c.frame", "kind": "r.event"}
_FROM = """
    FROM records r LEFT JOIN compiles c ON c.log = r.log AND c.compile_id = r.compile_id
    WHERE list_contains($events, r.event) AND ($log IS NULL OR r.log = $log)
"""
_VALUES = """
    SELECT m.record, m.name, m.number, m.text FROM metrics m
    WHERE m.record IN (SELECT unnest($records)) AND m.name IN (SELECT unnest($columns))
"""


@dataclass(frozen=True)
class MetricColumn:
    name: str
    group: Group
    unit: Unit
    scale: float
    """Factor that converts the logged numbers to `unit`."""
    added: bool
    """Whether its sum over compiles is meaningful."""


@dataclass(frozen=True)
class MetricRow:
    record: int
    log: int
    compile_id: str | None
    frame: str | None
    kind: str
    numbers: dict[str, float | None]
    """Number in each column, in the column's unit."""
    texts: dict[str, str]


@dataclass(frozen=True)
class CompileMetrics:
    columns: list[MetricColumn]
    available: list[MetricColumn]
    """Every field for which some record has a value."""
    rows: list[MetricRow]
    totals: dict[str, float]
    """Sum of each column over all rows that match, not only those shown."""
    highest: dict[str, float]
    total: int
    sort: str
    direction: str
    kind: str | None
    offset: int
    limit: int


def compile_metrics(
    trace: Trace,
    columns: Sequence[str] = (),
    sort: str = "record",
    direction: str = "asc",
    kind: str | None = None,
    log: int | None = None,
    offset: int = 0,
    limit: int = 100,
) -> CompileMetrics:
    """Return a page of the metrics; unknown columns are ignored, and an unknown `sort` means log order."""
    available = available_columns(trace)
    by_name = {column.name: column for column in available}
    shown = [by_name[name] for name in dict.fromkeys(columns) if name in by_name] or _default(by_name)
    sort = sort if sort in by_name or sort in _BASE_SORTS else "record"
    direction = "desc" if direction == "desc" else "asc"
    match: dict[str, object] = {"events": _events(kind), "log": log}
    names = [column.name for column in shown]
    totals, highest = _totals(trace, shown, match)
    return CompileMetrics(
        columns=shown,
        available=available,
        rows=list(_rows(trace, shown, names, sort, direction, {**match, "offset": offset, "limit": limit})),
        totals=totals,
        highest=highest,
        total=sql.rows(trace, f"SELECT count(*) {_FROM}", match)[0][0],
        sort=sort,
        direction=direction,
        kind=kind,
        offset=offset,
        limit=limit,
    )


def available_columns(trace: Trace) -> list[MetricColumn]:
    found = sql.rows(
        trace,
        "SELECT name, count(number), count(text) FROM metrics GROUP BY name HAVING count(number) + count(text) > 0",
    )
    columns = [_column(name, numbers >= texts) for name, numbers, texts in found if name != "compile_id"]
    order: list[Group] = ["time", "cache", "size", "count", "failure", "other"]
    return sorted(columns, key=lambda column: (order.index(column.group), column.name))


def _column(name: str, is_number: bool) -> MetricColumn:
    ending = next(((end, scale) for end, scale in _UNITS if name.endswith(end)), None)
    group: Group = "other"
    unit: Unit = "count" if is_number else "text"
    scale = 1.0
    if "fail" in name or "restart_reasons" in name or name in ("recompile_reason", "cudagraph_skip_reason"):
        group = "failure"
    elif "cache" in name and not name.endswith("_version"):
        group = "cache"
    elif name in _STAMPS:
        group = "other"
    elif ending:
        group = "time"
    elif "bytes" in name or "numel" in name:
        group = "size"
    elif is_number and (name.endswith(("_count", "_size")) or name.startswith("num_")):
        group = "count"
    if is_number and ending and name not in _STAMPS:
        unit, scale = "ns", ending[1]
    elif is_number and name.endswith("bytes"):
        unit = "bytes"
    return MetricColumn(name, group, unit, scale, is_number and name not in _NOT_ADDED)


def _default(by_name: dict[str, MetricColumn]) -> list[MetricColumn]:
    chosen = (next((name for name in names if name in by_name), None) for names in _PREFERRED)
    return [by_name[name] for name in chosen if name is not None]


def _events(kind: str | None) -> list[str]:
    return [event for event, of in _KINDS.items() if kind is None or of == kind]


def _rows(
    trace: Trace, columns: list[MetricColumn], names: list[str], sort: str, direction: str, match: dict[str, object]
) -> Iterator[MetricRow]:
    metric = sort not in _BASE_SORTS
    key = "s.number {0} NULLS LAST, s.text {0} NULLS LAST" if metric else f"{_BASE_SORTS[sort]} {{0}} NULLS LAST"
    joined = _FROM.replace("WHERE", "LEFT JOIN metrics s ON s.record = r.record AND s.name = $sort WHERE")
    found = sql.rows(
        trace,
        f"SELECT r.record, r.log, r.compile_id, c.frame, r.event {joined if metric else _FROM}"
        f" ORDER BY {key.format(direction)}, r.record LIMIT $limit OFFSET $offset",
        {**match, "sort": sort} if metric else match,
    )
    scales = {column.name: column.scale for column in columns}
    numbers: dict[int, dict[str, float | None]] = {record: {} for record, *_ in found}
    texts: dict[int, dict[str, str]] = {record: {} for record, *_ in found}
    for record, name, number, text in sql.rows(trace, _VALUES, {"records": list(numbers), "columns": names}):
        numbers[record][name] = None if number is None else number * scales[name]
        if text is not None:
            texts[record][name] = text
    for record, log, compile_id, frame, event in found:
        yield MetricRow(record, log, compile_id, frame, _KINDS[event], numbers[record], texts[record])


def _totals(
    trace: Trace, columns: list[MetricColumn], match: dict[str, object]
) -> tuple[dict[str, float], dict[str, float]]:
    added = {column.name: column for column in columns if column.added}
    found = sql.rows(
        trace,
        "SELECT m.name, sum(m.number), max(m.number) FROM metrics m JOIN records r ON r.record = m.record"
        " WHERE list_contains($events, r.event) AND ($log IS NULL OR r.log = $log)"
        " AND m.name IN (SELECT unnest($columns)) AND m.number IS NOT NULL GROUP BY m.name",
        {**match, "columns": list(added)},
    )
    totals = {name: total * added[name].scale for name, total, _ in found}
    return totals, {name: most * added[name].scale for name, _, most in found}
