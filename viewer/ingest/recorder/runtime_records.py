"""Reads stepscope's own records of one log into graphs, launch sites, tensors, steps, and what was not recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.tracer.schema.constants import ARTIFACT_PREFIX, OUTPUT_CODE
from stepscope.tracer.schema.gaps import Failure, Skipped
from stepscope.tracer.schema.graphs import Graph, Provenance
from stepscope.tracer.schema.launches import DeviceTimes, Launches, SameTensors, Tensors, TunedKernels
from stepscope.tracer.schema.memory import (
    Growth,
    LifetimeLayout,
    LifetimeMismatch,
    Lifetimes,
    MemoryStepMismatch,
    RecomputeMismatch,
    SchedulerMemory,
)
from stepscope.tracer.schema.process_ends import End, Overhead, ProcessEnd
from stepscope.tracer.schema.profiles import DeviceWork
from stepscope.tracer.schema.record import Record, to_payload
from stepscope.tracer.schema.records import RECORD_TYPES, Run
from stepscope.tracer.schema.scalars import CallSymbols
from stepscope.tracer.schema.statistics import Values
from stepscope.tracer.schema.steps import StepMarks, Steps
from stepscope.tracer.schema.values import SavedTensor, ValueLayout
from stepscope.viewer.ingest.damage import Damage
from stepscope.viewer.ingest.decode import BadPayload, decode
from stepscope.viewer.ingest.lenient_json import dumps, loads
from stepscope.viewer.ingest.reader import LogRecord
from stepscope.viewer.ingest.record_headers import ids_of
from stepscope.viewer.ingest.recorder.device_work import DeviceWorkBatches
from stepscope.viewer.ingest.recorder.graph_rows import GraphRows
from stepscope.viewer.ingest.recorder.launch_batches import (
    EndedStep,
    LaunchBatches,
    LoggedMark,
    ended_steps,
    step_marks,
)
from stepscope.viewer.ingest.recorder.memory_batches import Ids, MemoryBatches
from stepscope.viewer.ingest.recorder.ring import RingRows
from stepscope.viewer.ingest.recorder.run_facts import RunFacts
from stepscope.viewer.ingest.recorder.symbol_batches import SymbolBatches
from stepscope.viewer.ingest.recorder.value_batches import ValueRecords
from stepscope.viewer.ingest.rows import IndexRows
from stepscope.viewer.ingest.steps.compiles import Compiling
from stepscope.viewer.ingest.torch_trace.compile_ids import LogCompileIds
from stepscope.viewer.ingest.torch_trace.torch_events import OutputCode
from stepscope.viewer.ingest.torch_trace.torch_text import UserFrame

if TYPE_CHECKING:
    from stepscope.viewer.ingest.recorder.launch_places import LaunchPlaces

_TYPES: Mapping[str, type[Record]] = {ARTIFACT_PREFIX + kind.KIND: kind for kind in RECORD_TYPES}
_OF_A_RUNNING_PROCESS = (Graph, Launches, Steps, StepMarks, Overhead)
"""Records that invalidate an earlier `End`: the process tried to become another program and failed."""


def columns_of(record: Record) -> dict[str, Any]:
    """Return the fields of `record`; lists and objects as JSON."""
    payload = to_payload(record)
    return {name: dumps(value) if isinstance(value, (list, dict)) else value for name, value in payload.items()}


class RuntimeRecords:
    """Reads stepscope's records of one log; `finish` turns them into rows."""

    def __init__(
        self, log: int, path: Path, rows: IndexRows, damage: Damage, ids: LogCompileIds, ring: bytes | None = None
    ) -> None:
        """`ring` has the bytes of the launch ring beside the log."""
        self.log, self.path, self.rows, self.damage, self.ids = log, path, rows, damage, ids
        self.ring = RingRows(ring, damage)
        self.run = RunFacts(path)
        self._records: list[tuple[int, int | None, str | None]] = []
        """(record, its graph, the compile id in its header) of each record about a graph or compile."""
        self.end: End | None = None
        self.overhead: Overhead | None = None
        self.process_ends: list[ProcessEnd] = []
        self.graph_rows = GraphRows(log, rows, damage)
        self.tensors: list[Tensors | SameTensors] = []
        self.tuned: list[TunedKernels] = []
        self.steps: dict[int, EndedStep] = {}
        self.marks: list[LoggedMark] = []
        self.batches = LaunchBatches()
        self.symbols = SymbolBatches()
        self.values = ValueRecords(damage)
        self.work = DeviceWorkBatches()
        self.memory = MemoryBatches(damage)
        self.not_recorded: Counter[tuple[str, str, int | None]] = Counter()

    def read(self, record: LogRecord) -> None:
        """Read one `stepscope_*` artifact; unknown kinds are ignored.

        Raises NewerFormat if the log has a newer format; an invalid payload is counted as damage.
        """
        self.run.is_ours = True
        name = record.name or ""
        kind = _TYPES.get(name)
        if kind is None:
            if name.startswith(OUTPUT_CODE) and name[len(OUTPUT_CODE) :].isdecimal():
                self._note_graph(record, int(name[len(OUTPUT_CODE) :][:18]))
            return
        try:
            payload = loads(record.payload or b"")
            if kind is Run:
                self.run.begin(payload)
            value = decode(kind, payload)
            self._note_graph(record, getattr(value, "graph", None))
            if kind in _OF_A_RUNNING_PROCESS:
                self.end = None
            self._take(value, record, payload)
        except ValueError as error:
            if record.sound or isinstance(error, BadPayload):
                self.damage.add("broken_payload", f"{record.name}: {error}", *record.place)

    def _note_graph(self, record: LogRecord, graph: int | None) -> None:
        ids = ids_of(record.header.envelope)
        compile_id = self.ids.name(ids[0], record) if ids is not None else None
        if graph is not None or compile_id is not None:
            self._records.append((record.record, graph, compile_id))

    def compiles_of_records(self, known: Collection[str]) -> dict[int, str]:
        """Return the compile, one of `known`, of each record. Its graph is more reliable than its header: PyTorch may
        have begun a new count of ids before the record was written."""
        found = {}
        for record, number, named in self._records:
            graph = self.graph_rows.graphs.get(number) if number is not None else None
            compile_id = graph.compile_id if graph is not None else named
            if compile_id is not None and compile_id in known:
                found[record] = compile_id
        return found

    def _take(self, value: Record, record: LogRecord, payload: dict[str, Any]) -> None:  # noqa: C901
        match value:
            case Run():
                self.run.take(value, payload)
            case Graph():
                self.graph_rows.graphs.setdefault(
                    value.graph, replace(value, compile_id=self.ids.name(value.compile_id, record))
                )
            case Provenance():
                self.graph_rows.provenance[value.graph] = value
            case Tensors() | SameTensors():
                self.tensors.append(value)
            case TunedKernels():
                if len(value.kernel) != len(value.config):
                    raise BadPayload("TunedKernels has columns of unequal length")
                self.tuned.append(value)
            case Steps():
                self.steps.update(ended_steps(value))
            case StepMarks():
                self.marks += step_marks(value)
            case Launches():
                self.batches.add(value)
            case CallSymbols():
                self.symbols.take(value)
            case DeviceWork():
                self.work.add(value)
            case DeviceTimes() | ValueLayout() | Values() | SavedTensor():
                self.values.take(value, record.place)
            case SchedulerMemory() | LifetimeLayout() | Lifetimes() | Growth():
                self.memory.take(value, record.place)
            case LifetimeMismatch() | MemoryStepMismatch():
                self.memory.take(value, record.place)
            case RecomputeMismatch():
                known = self.ids.name(value.compile_id, record) or record.compile_id
                self.memory.take_recompute(replace(value, compile_id=known), record)
            case Skipped():
                self.not_recorded[value.what, value.why, value.graph] += 1
            case Failure():
                self.not_recorded[value.where, f"the recorder failed here: {value.error}", None] += value.count
            case Overhead():
                self.overhead = value
            case End():
                self.end = value
                self.run.end(value.monotonic_ns, record.time_ns)
                if value.device_error is not None:
                    self.rows.add("device_errors", log=self.log, text=value.device_error)
            case ProcessEnd():
                self.process_ends.append(value)
            case _ if value.TABLE is not None:
                self.rows.add(value.TABLE, log=self.log, time_unix_ns=record.time_ns, **columns_of(value))

    def finish(
        self,
        codes: list[OutputCode],
        callers: Mapping[str, UserFrame],
        compiles: Iterable[Compiling] = (),
        updates: Container[str] = (),
    ) -> None:
        """Add all rows. `codes` are the generated wrappers in the log, `callers` the lines that called each compiled
        function, by compile id, `compiles` the periods of compiling in unix ns, and `updates` the ids of the compiles
        of optimizers."""
        contained = self.damage.contained
        self.graph_rows.add(codes, callers, self.run.is_ours)
        for place, tensors in enumerate(self.tensors):
            with contained("tensors of a call"):
                self.graph_rows.add_tensors(tensors, place)
        for tuned in self.tuned:
            with contained("tuned kernels"):
                self.graph_rows.add_tuned(tuned)
        self._add_runs(compiles, updates)
        self._add_process_ends()
        self._add_not_recorded()
        if self.overhead is not None:
            self.rows.add("overhead", log=self.log, **columns_of(self.overhead))

    def _add_runs(self, compiles: Iterable[Compiling], updates: Container[str]) -> None:
        """Add calls, launches, their values, and the memory of calls."""
        contained = self.damage.contained
        if self.run.is_ours:
            with contained("calls of the launch ring"):
                self.ring.add_calls(self.batches, self.steps, self.marks)
            with contained("steps"):
                self._find_steps(compiles, updates)
        places: LaunchPlaces | None = None
        with contained("calls and launches"):
            places = self._add_launches()
        with contained("symbols of calls"):
            self._add_symbols(places)
        with contained("the position of each thread"):
            self.ring.add_rows(self.rows, self.log, self.batches, places, self.graph_rows.graph_id)
        with contained("values"):
            self._add_values(places)
        with contained("memory"):
            self._add_memory(places)

    def _add_launches(self) -> LaunchPlaces | None:
        places, lost = None, len(self.values.device_times)
        if self.steps or self.batches.parents:
            from stepscope.viewer.ingest.recorder.launch_columns import add_launches

            graphs = self.graph_rows
            functions = {number: graph.functions for number, graph in graphs.graphs.items()}
            places, lost = add_launches(
                self.batches, self.rows, self.log, self.steps, functions, graphs.graph_id, graphs.site_id,
                self.values.device_times, self.work,
            )  # fmt: skip
        if lost:
            text = f"{lost:,} times on the device of launches that are not in the log"
            self.damage.add("unknown_launch", text)
        return places

    def _add_values(self, places: LaunchPlaces | None) -> None:
        if self.values.batches or self.values.saved:
            from stepscope.viewer.ingest.recorder.value_columns import add_saved, add_values

            inputs = {number: graph.inputs for number, graph in self.graph_rows.graphs.items()}
            add_values(self.values, self.rows, self.log, places, inputs)
            add_saved(self.values.saved, self.rows, self.log, places, self.damage)

    def _add_memory(self, places: LaunchPlaces | None) -> None:
        graphs = self.graph_rows
        ids = Ids(graphs.graph_id, graphs.known_site, graphs.function, graphs.phase)
        self.memory.add_rows(self.rows, self.log, places, ids)
        if self.memory.has_lifetimes:
            from stepscope.viewer.ingest.recorder.lifetime_columns import add_lifetimes

            add_lifetimes(self.memory, self.rows, self.log, places, ids)

    def _add_symbols(self, places: LaunchPlaces | None) -> None:
        self.symbols.take_ring(self.ring.ring.symbols if self.ring.ring is not None else ())
        names = {number: graph.symbols for number, graph in self.graph_rows.graphs.items()}
        lost = self.symbols.finish(self.rows, self.log, places, names)
        if lost:
            self.damage.add("unknown_launch", f"numbers of {lost:,} calls that are not in the log")

    def _find_steps(self, spans: Iterable[Compiling], updates: Container[str]) -> None:
        if not (self.batches.parents or self.marks or self.steps):
            return
        from stepscope.viewer.ingest.steps import assign as steps_assign
        from stepscope.viewer.ingest.steps import compiles as steps_compiles

        compiles = steps_compiles.on_clock_of(self.run.clocks(), spans)
        if self.run.said.get("guesses_steps", not (self.run.is_whole or self.steps)):
            ended = self.end is not None or self.ring.has_ended or self.ring.left_between_calls
            self.steps = steps_assign.find_steps(
                self.batches,
                self.graph_rows.graphs,
                self.marks,
                compiles,
                updates=updates,
                has_ended=ended,
                feeds=self.run.said.get("loads_data", False),
            )
        booked = steps_compiles.compiles_by_step(compiles, self.batches, self.graph_rows.graphs, updates)
        self.steps = steps_compiles.with_compiles(self.steps, compiles, booked)

    def _add_process_ends(self) -> None:
        """Add the end of the process as its parent saw it, else the signal in the ring that asked it to exit."""
        for end in self.process_ends:
            self._add_process_end(end)
        asked_by = None if self.end or self.process_ends else self.ring.asked_by()
        if self.run.is_ours and asked_by is not None:
            pid = self.run.said.get("pid")
            self.rows.add("process_ends", log=self.log, pid=pid, signal=asked_by, timed_out=False, tool_errors="[]")

    def _add_process_end(self, end: ProcessEnd) -> None:
        run = end.crash_run
        self.rows.add(
            "process_ends",
            log=self.log,
            pid=end.pid,
            exit_code=end.exit_code,
            signal=end.signal,
            timed_out=end.timed_out,
            duration_ns=end.duration_ns,
            error_tail=end.error_tail,
            run=run.run if run else None,
            purpose=run.purpose if run else None,
            environment=dumps(run.environment) if run else None,
            level=run.level if run else None,
            kernels=dumps(run.kernels) if run else None,
            tool=dumps(run.tool) if run else None,
            tool_errors=dumps(end.tool_errors),
        )

    def _add_not_recorded(self) -> None:
        told = {graph for _, _, graph in self.not_recorded}
        for number, graph in self.graph_rows.graphs.items():
            if graph.not_recorded is not None and number not in told:
                self.not_recorded["launches of a graph", graph.not_recorded, number] += 1
        for what, why in self.ring.not_recorded():
            self.not_recorded[what, why, None] += 1
        for (what, why, about), count in self.not_recorded.items():
            graph_id = self.graph_rows.known_graph(about)
            self.rows.add("not_recorded", log=self.log, what=what, why=why, graph=graph_id, count=count)
