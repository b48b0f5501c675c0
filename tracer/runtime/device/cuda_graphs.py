"""Records replays of graph calls that were captured into a CUDA graph; they run the launches without Python.

A replay becomes a new call for each captured call: the same launches, all with the times of the replay, and the
values that the captured readings computed in it.
"""

from __future__ import annotations

import sys
import threading
import weakref
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from stepscope.tracer.log.launch_ring import LaunchRing
from stepscope.tracer.runtime.calls import GraphCall, running_call
from stepscope.tracer.runtime.device.captured_nodes import NodeCounter, ReplayedWork, seen_before
from stepscope.tracer.runtime.device.marks import DeviceMarks, GraphSlot
from stepscope.tracer.runtime.device.replays import Replays
from stepscope.tracer.runtime.device.times import between_readings
from stepscope.tracer.runtime.stats.snapshots import joined, runs
from stepscope.tracer.runtime.values.rows import ReadRow, RowGroup
from stepscope.tracer.schema.gaps import Skipped

if TYPE_CHECKING:
    from stepscope.tracer.runtime.stats.arena import Arena
    from stepscope.tracer.runtime.stats.snapshots import CapturedBlock, DeviceBlock, Snapshot
    from stepscope.tracer.runtime.values.reading import ReadPlan


@dataclass
class _CapturedCall:
    call: GraphCall
    enter: Callable[[], int]
    """Function that reports a call to the step tracker, and returns its step."""
    plan: Callable[[], ReadPlan | None]
    """Function that returns the current plan of reads."""
    sites: list[int]
    rows: list[ReadRow]
    blocks: list[CapturedBlock]
    read_at: list[int]
    """Number of launches before each of `blocks`."""
    plan_then: ReadPlan | None
    chosen: _ChosenRows
    slot: GraphSlot | None
    """Slot in which replays count the launches that they have finished."""
    counts: Sequence[int]
    """Number of nodes before and after each launch; empty if they were not counted."""


@dataclass(frozen=True)
class _ChosenRows:
    """The rows that a plan selects from those that a graph computes."""

    plan: ReadPlan | None
    rows: RowGroup | None
    places: npt.NDArray[np.intp] | None
    """Positions of the selected rows; None if all are selected."""


class ReplaySink(Protocol):
    """The part of the recorder that replays of CUDA graphs need."""

    ring: LaunchRing
    marks: DeviceMarks
    running: dict[int, GraphCall]
    """Calls that are recorded and not yet passed on, by number."""

    @property
    def is_on(self) -> bool:
        """Whether calls that begin now are recorded."""

    def finish(self, call: GraphCall) -> None: ...
    def skipped(self, record: Skipped) -> None: ...
    def failed(self, where: str, error: BaseException) -> None: ...


class CudaGraphCalls:
    """The captured calls of each CUDA graph of a process."""

    def __init__(self, sink: ReplaySink, counts_nodes: bool = False) -> None:
        self._sink, self._counts_nodes = sink, counts_nodes
        self.profiled: list[ReplayedWork] | None = None
        """Replays since PyTorch's profiler was started; None while it does not run."""
        self._seen_before: dict[int, list[int]] = {}
        """Result of `captured_nodes.seen_before` for each graph."""
        self._replaying: dict[tuple[int, int], list[tuple[_CapturedCall, GraphCall]]] = {}
        """Replays that are being submitted, by thread and graph."""
        self._by_graph: dict[int, list[_CapturedCall]] = {}
        self._lock = threading.Lock()
        self._replays = Replays(self._on_replay, self._on_capture, self._on_reset)

    def attach(self) -> None:
        from stepscope.tracer.runtime.stats.arena import watch_captures

        self._replays.attach()
        watch_captures(self._replays.current)

    def detach(self) -> None:
        from stepscope.tracer.runtime.stats.arena import watch_captures

        watch_captures(None)
        self._replays.detach()
        self._by_graph.clear()

    def counter(self) -> NodeCounter | None:
        """Return the function to call before and after each launch of a captured call, or None."""
        return NodeCounter() if self._counts_nodes else None

    def add(self, call: GraphCall, enter: Callable[[], int], plan: Callable[[], ReadPlan | None]) -> bool:
        """Add a captured call that has ended; return False if the begin of the capture was not seen."""
        graph = self._replays.current()
        found, call.readings = call.readings, []
        if graph is None:
            return False
        why = [_why_not(block) for _, block in found]
        for reason in sorted({reason for reason in why if reason is not None}):
            self._sink.skipped(Skipped("values inside a CUDA graph", reason, call.graph))
        readings = [(reading, at) for reading, at, reason in zip(found, call.read_at, why, strict=True) if not reason]
        blocks: list[Any] = [block for (_, block), _ in readings]
        rows = [row for (prepared, _), _ in readings for row in prepared.rows]
        now, read_at = plan(), [at for _, at in readings]
        chosen = _ChosenRows(now, RowGroup(rows) if rows else None, None)
        slot = call.flag if isinstance(call.flag, GraphSlot) else None
        counts = call.mark.counts if isinstance(call.mark, NodeCounter) else []
        captured = _CapturedCall(call, enter, plan, call.rows[0::3], rows, blocks, read_at, now, chosen, slot, counts)
        with self._lock:
            if id(graph) not in self._by_graph:
                self._by_graph[id(graph)] = []
                weakref.finalize(graph, self._forget, id(graph)).atexit = False
            self._by_graph[id(graph)].append(captured)
        return True

    def is_capturing(self) -> bool:
        """Return whether any thread is capturing a CUDA graph."""
        return self._replays.is_capturing()

    def _on_capture(self, graph: Any, begins: bool) -> None:
        """Send earlier readings to the host, which is not possible during a capture."""
        if begins:
            flush_devices()
        elif self._counts_nodes and id(graph) in self._by_graph:
            self._seen_before[id(graph)] = seen_before()

    def _on_reset(self, graph: Any) -> None:
        self._forget(id(graph))
        for arena in loaded_arenas():
            arena.forget(graph)

    def _forget(self, number: int) -> None:
        # No lock: the garbage collector calls this, perhaps in a thread that has acquired it.
        gone = self._by_graph.pop(number, None) or []
        self._seen_before.pop(number, None)
        self._sink.marks.give_back(one.slot.slot for one in gone if one.slot is not None)

    def _on_replay(self, graph: Any, begins: bool) -> None:
        captured = self._by_graph.get(id(graph))
        if not captured:
            return
        key = threading.get_ident(), id(graph)
        try:
            if begins:
                self._replaying[key] = self._begin_replay(captured)
            else:
                self._end_replay(graph, self._replaying.pop(key, []))
        except Exception as error:
            self._sink.failed("replay", error)

    def _begin_replay(self, captured: Sequence[_CapturedCall]) -> list[tuple[_CapturedCall, GraphCall]]:
        replayed: dict[int, GraphCall] = {}
        begun: list[tuple[_CapturedCall, GraphCall]] = []
        around = running_call()
        if not (around.is_recorded if around is not None else self._sink.is_on):
            return begun
        for one in sorted(captured, key=lambda one: one.call.number):  # a call begins before those inside it
            # A parent that was not captured, such as the function around a partition, runs in Python now too.
            parent = replayed.get(one.call.parent.number) or around if one.call.parent else None
            call = replayed[one.call.number] = _replay(one, parent)
            self._sink.running[call.number] = call
            stream = self._sink.marks.stream(one.slot.device) if one.slot is not None else None
            if one.slot is not None:
                call.graph_slot = one.slot.slot
            if stream is not None:
                call.flag, call.stream = stream, stream.index
            self._sink.ring.replay(call, array("q", one.sites).tobytes())
            begun.append((one, call))
        return begun

    def _end_replay(self, graph: Any, begun: Sequence[tuple[_CapturedCall, GraphCall]]) -> None:
        end_ns = perf_counter_ns()
        if self.profiled is not None and begun:
            first, seen = begun[0][1], self._seen_before.get(id(graph), [])
            calls = [(call.number, one.counts) for one, call in begun]
            self.profiled.append(ReplayedWork(first.thread, first.start_ns, end_ns, seen, calls))
        snapshots: Sequence[Snapshot] | None = None
        for one, call in begun:
            call.end_ns = end_ns
            call.rows[1::3] = [call.start_ns] * len(one.sites)
            call.rows[2::3] = [end_ns] * len(one.sites)
            self._sink.ring.end(call)
            if call.flag is not None and call is begun[-1][1]:
                call.flag(call)
            chosen = self._chosen(one)
            if chosen.plan is not None and chosen.rows is not None and chosen.plan.wants_step(call.step):
                snapshots = snapshots or _snapshots(graph)
                if snapshots is not None:
                    blocks = [block.of(snapshots) for block in one.blocks]
                    call.readings = [(chosen.rows, _ReplayedBlock(blocks, chosen.places))]
                    call.device_times = partial(_device_times, blocks, one.read_at)
            self._sink.finish(call)

    def _chosen(self, captured: _CapturedCall) -> _ChosenRows:
        """Return the rows that the current plan selects; the graph computes those that were selected at its capture."""
        plan, before = captured.plan(), captured.chosen
        if plan is not before.plan:
            places = [n for n, row in enumerate(captured.rows) if plan is not None and plan.wants(row.planned)]
            if len(places) == len(captured.rows):
                captured.chosen = _ChosenRows(plan, RowGroup(captured.rows) if places else None, None)
            else:
                rows = RowGroup([captured.rows[n] for n in places]) if places else None
                captured.chosen = _ChosenRows(plan, rows, np.array(places, dtype=np.intp))
            if plan is not None and captured.sites and _may_miss(captured.plan_then, plan):
                why = "replays read only what was requested when the graph was captured"
                self._sink.skipped(Skipped("values inside a CUDA graph", why, captured.call.graph))
        return captured.chosen


def _replay(captured: _CapturedCall, parent: GraphCall | None) -> GraphCall:
    of = captured.call
    call = GraphCall(of.graph, of.function, None, parent)
    call.state = "replayed"
    call.thread = threading.get_native_id()
    call.step = parent.step if parent is not None else captured.enter()
    call.start_ns = perf_counter_ns()
    call.rows = [0] * (3 * len(captured.sites))
    call.rows[0::3] = captured.sites
    call.symbols = of.symbols
    return call


def _may_miss(then: ReadPlan | None, now: ReadPlan) -> bool:
    """Return whether a plan may select more than the plan of the capture."""
    if then is None:
        return True
    a, b = then.config, now.config
    filters_changed = (a.kernels, a.args) != (b.kernels, b.args)
    return bool(filters_changed and (a.kernels or a.args)) or b.verify_before > a.verify_before


def _why_not(block: Any) -> str | None:
    """Return why the result of a captured reading is unknown for each replay, or None if it is known."""
    if hasattr(block, "of"):
        why: str | None = block.skipped
        return why
    return getattr(block, "skipped", None) or "it reads tensors that are not on the device of the graph"


def forget_parent_devices() -> None:
    """Replace locks in a forked child, where CUDA cannot be used and threads that had acquired them are gone."""
    for name in ("stats.arena", "compiled"):
        module = sys.modules.get(f"stepscope.tracer.runtime.{name}")
        if module is not None:
            module.forget_parent_process()


def loaded_arenas() -> list[Arena]:
    """Return the existing arenas; there is none if nothing was read on a device."""
    loaded = sys.modules.get("stepscope.tracer.runtime.stats.arena")
    found: list[Arena] = loaded.arenas() if loaded is not None else []
    return found


def flush_devices() -> None:
    """Send the statistics on devices to the host, without waiting for them."""
    for arena in loaded_arenas():
        arena.flush()


def _snapshots(graph: Any) -> Sequence[Snapshot] | None:
    for arena in loaded_arenas():
        found = arena.snapshot(graph)
        if found is not None:
            return found
    return None


class _ReplayedBlock:
    """The rows that a replay has computed for a call, or a selection of them."""

    __slots__ = ("_blocks", "_places")

    def __init__(self, blocks: Sequence[DeviceBlock], places: npt.NDArray[np.intp] | None) -> None:
        self._blocks, self._places = runs(blocks), places

    def rows(self) -> npt.NDArray[Any] | None:
        found = []
        for block in self._blocks:
            rows = block.rows()
            if rows is None:
                return None
            found.append(rows)
        return self._wanted(found)

    def wait(self) -> npt.NDArray[Any]:
        return self._wanted([block.wait() for block in self._blocks])

    def _wanted(self, found: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        rows = joined(found)
        return rows if self._places is None else rows[self._places]


def _device_times(blocks: Sequence[DeviceBlock], read_at: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the launches of a replay whose times are known, and the times (`between_readings`)."""
    times = [found for block in blocks if (found := block.times()) is not None]
    if len(times) < len(blocks):
        return [], []
    return between_readings(np.concatenate(times), [len(one) for one in times], read_at)
