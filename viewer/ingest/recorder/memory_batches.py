"""Collects what one log records about memory: schedules, lifetimes of storages, mismatches and growth.

numpy is imported at the first lifetimes only, because a log without them does not need it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

from stepscope.tracer.schema.memory import (
    Growth,
    LifetimeLayout,
    LifetimeMismatch,
    Lifetimes,
    MemoryStepMismatch,
    RecomputeMismatch,
    ScheduledBuffers,
    SchedulerMemory,
)
from stepscope.viewer.ingest.damage import Damage, RecordPlace
from stepscope.viewer.ingest.decode import BadPayload
from stepscope.viewer.ingest.lenient_json import dumps
from stepscope.viewer.ingest.reader import LogRecord
from stepscope.viewer.ingest.rows import IndexRows

if TYPE_CHECKING:
    from stepscope.viewer.ingest.recorder.launch_places import LaunchPlaces

MOST_BYTES = 1 << 46
"""Maximum plausible size; sums of such sizes fit 64 bits."""
MOST_TIMES = 1 << 40
"""Maximum plausible number of times that a check found the same mismatch."""
MemoryRecord = SchedulerMemory | LifetimeLayout | Lifetimes | LifetimeMismatch | MemoryStepMismatch | Growth


@dataclass(frozen=True)
class Ids:
    """Maps numbers of the log to ids and names of the index."""

    graph: Callable[[int], int]
    known_site: Callable[[int, int], int | None]
    """Returns None for a site that the graph does not have."""
    function: Callable[[int, int], str]
    phase: Callable[[int], str | None]


class MemoryBatches:
    """Collects records in the order of the log; `add_rows` and `lifetime_columns` turn them into rows."""

    def __init__(self, damage: Damage) -> None:
        self.damage = damage
        self.schedules: dict[tuple[int, str | None], SchedulerMemory] = {}
        self.layouts: dict[int, LifetimeLayout] = {}
        self.calls = {name: array("q") for name in ("call", "layout")}
        self.deaths = {name: array("q") for name in ("dead_call", "dead_index", "dead_ns")}
        self.allocator = {name: array("q") for name in _ALLOCATOR}
        self.mismatches: list[LifetimeMismatch] = []
        self.step_mismatches: list[MemoryStepMismatch] = []
        self.growth: list[Growth] = []
        self.looked_for_growth = False
        self.recomputes: list[tuple[LogRecord, RecomputeMismatch]] = []
        self.saw_lifetimes = False

    def take(self, value: MemoryRecord, place: RecordPlace) -> None:
        """Add a record. Raises BadPayload if it is inconsistent."""
        match value:
            case SchedulerMemory():
                _check_schedule(value)
                self._keep_first(self.schedules, (value.graph, value.subgraph), value, "a schedule", place)
            case LifetimeLayout():
                check_layout(value)
                self._keep_first(self.layouts, value.layout, value, "a lifetime layout", place)
            case Lifetimes():
                self._add(value, place)
            case LifetimeMismatch():
                _check_columns(value, "kind", without=("graph", "layout", "call"))
                self.mismatches.append(value)
            case MemoryStepMismatch():
                check_step_mismatch(value)
                self.step_mismatches.append(value)
            case Growth():
                has_bytes = bool(value.tensor_bytes)  # older logs have none
                _check_columns(value, "call", without=("at_step",) if has_bytes else ("at_step", "tensor_bytes"))
                self.growth.append(value)
                self.looked_for_growth |= value.at_step is None
        self.saw_lifetimes |= isinstance(value, LifetimeLayout | Lifetimes)

    def take_recompute(self, value: RecomputeMismatch, record: LogRecord) -> None:
        """Add a mismatch; its compile id is that of the log. Raises BadPayload if it is inconsistent."""
        check_recompute(value)
        self.recomputes.append((record, value))

    def _keep_first(self, known: dict, key: object, value: MemoryRecord, what: str, place: RecordPlace) -> None:  # type: ignore[type-arg]
        if known.setdefault(key, value) != value:
            self.damage.add("broken_lifetimes", f"{what} exists twice; the first is kept", place.line, place.byte)

    def _add(self, batch: Lifetimes, place: RecordPlace) -> None:
        if len(batch.call) != len(batch.layout):
            raise BadPayload("Lifetimes has columns of unequal length")
        if not len(batch.dead_call) == len(batch.dead_index) == len(batch.dead_ns):
            raise BadPayload("Lifetimes has columns of unequal length")
        _check_columns(batch.allocator, "call")
        for layout in sorted(set(batch.layout) - self.layouts.keys()):
            text = f"lifetimes of layout {layout}, which does not precede them"
            self.damage.add("unknown_layout", text, place.line, place.byte)
        for into, source in ((self.calls, batch), (self.deaths, batch), (self.allocator, batch.allocator)):
            for name, column in into.items():
                column.extend(getattr(source, name))

    def schedule_of(self, graph: int, function: str) -> SchedulerMemory | None:
        """Return the schedule of the subgraph with that function, else of the graph."""
        return self.schedules.get((graph, function)) or self.schedules.get((graph, None))

    def add_rows(self, rows: IndexRows, log: int, places: LaunchPlaces | None, ids: Ids) -> None:
        """Add the rows of schedules, step checks and reordering passes."""
        self._add_schedules(rows, log, ids)
        for record, value in self.recomputes:
            _add_recompute(rows, log, record, value, ids)
        for mismatch in self.step_mismatches:
            _add_step_mismatch(rows, log, mismatch, places, ids)

    @property
    def has_lifetimes(self) -> bool:
        """Whether the log has rows that need numpy."""
        return self.saw_lifetimes or bool(self.mismatches or self.growth)

    def _add_schedules(self, rows: IndexRows, log: int, ids: Ids) -> None:
        for memory in self.schedules.values():
            schedule, buffers = rows.new_id("schedules"), memory.buffers
            rows.add(
                "schedules",
                schedule=schedule,
                log=log,
                graph=ids.graph(memory.graph),
                subgraph=memory.subgraph,
                peak_bytes=memory.peak_bytes,
                peak_snodes=dumps([i for i in memory.peak_snodes if 0 <= i < len(memory.snode)]),
                base_bytes=sum(memory.base_bytes),
            )
            count = len(memory.snode)
            nodes = {
                "schedule": [schedule] * count,
                "snode_index": range(count),
                "snode": memory.snode,
                "members": [dumps(members) for members in memory.members],
                "kind": memory.node_kind,
                "alloc_bytes": memory.alloc_bytes,
                "free_bytes": memory.free_bytes,
                "after_alloc_bytes": memory.after_alloc_bytes,
                "after_free_bytes": memory.after_free_bytes,
            }
            rows.extend("schedule_nodes", nodes)
            columns = {field.name: getattr(buffers, field.name) for field in fields(buffers)}
            rows.extend("scheduled_buffers", {"schedule": [schedule] * len(buffers.name), **columns})
            for name, size in zip(memory.base_name, memory.base_bytes, strict=True):
                rows.add(
                    "scheduled_buffers",
                    schedule=schedule,
                    name=name,
                    alloc_bytes=size,
                    free_bytes=size,
                    first_snode=0,
                    last_snode=-1,
                    role="base",
                )


_ALLOCATOR = ("call", "position", "allocated_bytes", "reserved_bytes")


def _check_columns(value: object, first: str, without: tuple[str, ...] = ()) -> None:
    count = len(getattr(value, first))
    names = [f.name for f in fields(value) if f.name not in without]  # type: ignore[arg-type]
    if any(len(getattr(value, name)) != count for name in names):
        raise BadPayload(f"{type(value).__name__} has columns of unequal length")


def _check_bytes(columns: dict[str, list[int]]) -> None:
    for name, column in columns.items():
        if column and not 0 <= min(column) <= max(column) <= MOST_BYTES:
            raise BadPayload(f"{name} contains an invalid number of bytes")


def _check_schedule(memory: SchedulerMemory) -> None:
    names = ("members", "node_kind", "alloc_bytes", "free_bytes", "after_alloc_bytes", "after_free_bytes")
    if any(len(getattr(memory, name)) != len(memory.snode) for name in names):
        raise BadPayload("SchedulerMemory has columns of unequal length")
    if len(memory.base_name) != len(memory.base_bytes):
        raise BadPayload("SchedulerMemory has columns of unequal length")
    _check_columns(memory.buffers, "name")
    _check_bytes(
        {f"SchedulerMemory.{name}": getattr(memory, name) for name in (*names[2:4], "base_bytes")}
        | _bytes_of(memory.buffers)
        | {"SchedulerMemory.peak_bytes": [memory.peak_bytes]}
    )
    for name in names[4:]:  # a schedule that frees more than it allocates may go below 0
        if any(abs(size) > MOST_BYTES for size in getattr(memory, name)):
            raise BadPayload(f"SchedulerMemory.{name} contains an invalid number of bytes")


def _bytes_of(buffers: ScheduledBuffers) -> dict[str, list[int]]:
    return {f"ScheduledBuffers.{name}": getattr(buffers, name) for name in ("alloc_bytes", "free_bytes")}


def check_layout(layout: LifetimeLayout) -> None:
    """Raise BadPayload if the columns are inconsistent."""
    _check_columns(layout, "name", without=("layout", "graph", "function", "dead", "dead_at"))
    if len(layout.dead) != len(layout.dead_at):
        raise BadPayload("LifetimeLayout has columns of unequal length")
    _check_bytes({"LifetimeLayout.storage_bytes": layout.storage_bytes})
    if layout.dead and not 0 <= min(layout.dead) <= max(layout.dead) < len(layout.name):
        raise BadPayload("LifetimeLayout.dead names a storage that does not exist")
    if min(layout.born, default=0) < 0 or min(layout.dead_at, default=0) < 0:
        raise BadPayload("LifetimeLayout has a position before the call")


def check_step_mismatch(value: MemoryStepMismatch) -> None:
    """Raise BadPayload if the columns are inconsistent. Older logs lack the last ones."""
    newer = [name for name in ("storage", "times") if not getattr(value, name)]
    _check_columns(value, "kind", without=("graph", "call", "file", "line", "is_final_step", "site", *newer))
    if any(not 0 < times <= MOST_TIMES for times in value.times):
        raise BadPayload("MemoryStepMismatch.times contains an invalid number")


def check_recompute(value: RecomputeMismatch) -> None:
    """Raise BadPayload if the columns are inconsistent."""
    names = [f.name for f in fields(value) if f.name.startswith(("carried_", "recomputed_", "before_"))]
    for name in names:
        known = {len(value.snode)} if "_after_" in name else {0, len(value.snode)}
        if len(getattr(value, name)) not in known:
            raise BadPayload("RecomputeMismatch has columns of unequal length")
    if not len(value.last_use_buffer) == len(value.last_use_before) == len(value.last_use_after):
        raise BadPayload("RecomputeMismatch has columns of unequal length")
    if len(value.reasons) != len(value.reason_snode):
        raise BadPayload("RecomputeMismatch has columns of unequal length")
    _check_columns(value.buffers, "name")


def _add_step_mismatch(
    rows: IndexRows, log: int, value: MemoryStepMismatch, places: LaunchPlaces | None, ids: Ids
) -> None:
    at = None if places is None or value.call is None else places.position.get(value.call)
    call = None if at is None or places is None else int(places.call_id[at])
    graph = None if value.graph is None else ids.graph(value.graph)
    site = None if value.graph is None or value.site is None else ids.known_site(value.graph, value.site)
    columns = zip(
        value.kind, value.buffer, value.storage_bytes, value.holders, value.storage or value.buffer,
        value.times or [1] * len(value.kind), strict=True,
    )  # fmt: skip
    for kind, buffer, size, holders, storage, times in columns:
        rows.add(
            "memory_step_mismatches",
            mismatch=rows.new_id("memory_step_mismatches"),
            log=log,
            graph=graph,
            call=call,
            file=value.file,
            line=value.line,
            is_final_step=value.is_final_step,
            kind=kind,
            buffer=buffer,
            storage_bytes=size if size is None or size >= 0 else None,
            holders=dumps(holders),
            site=site,
            storage=storage,
            times=times,
        )


def _add_recompute(rows: IndexRows, log: int, record: LogRecord, value: RecomputeMismatch, ids: Ids) -> None:
    graph = None if value.graph is None else ids.graph(value.graph)
    peaks = [i for i in value.peak_snodes if 0 <= i < len(value.snode)]
    rows.add(
        "recompute_mismatches",
        recompute=rows.new_id("recompute_mismatches"),
        log=log,
        record=record.record,
        time_unix_ns=record.time_ns,
        compile_id=value.compile_id,
        graph=graph,
        subgraph=value.subgraph,
        pass_name=value.pass_name,
        swap=value.swap,
        candidate=value.candidate,
        members=dumps(value.group),
        reasons=dumps(value.reasons),
        reason_snodes=dumps(value.reason_snode),
        peak_before_bytes=value.peak_before_bytes,
        peak_after_bytes=value.peak_after_bytes,
        allowed_peak_bytes=value.allowed_peak_bytes,
        is_explained=value.is_explained,
        peak_snodes=dumps(peaks),
        peak_snode=value.snode[peaks[0]] if peaks else None,
        snodes=len(value.snode),
        found_by=value.found_by,
        swapped=dumps([asdict(node) for node in value.swapped]),
    )
