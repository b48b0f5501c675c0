"""The hooks that generated code calls: at the begin and end of each graph call, and for the arguments of a launch.

A launch itself calls nothing here. The wrapper's own code (`stepscope.tracer.inductor.code_swap`), or compiled code
that it calls (`stepscope.tracer.runtime.ticks`), adds (site, start, end) to the call's `rows`. So a launch takes two
readings of the clock, three list items, and two of the call's `cells` in the launch ring, which show that it has begun
and returned even if the process dies.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from time import perf_counter_ns, thread_time_ns
from types import FrameType
from typing import Any, Protocol

from stepscope.tracer.judge.judge import Judge
from stepscope.tracer.judge.plan import FunctionPlan
from stepscope.tracer.log.launch_ring import FunctionShape, SymbolValues
from stepscope.tracer.runtime.argument_forms import TOO_MANY, ArgumentForms, described, signature_of
from stepscope.tracer.runtime.calls import GraphCall, this_thread
from stepscope.tracer.runtime.device.cuda_graphs import CudaGraphCalls, ReplaySink
from stepscope.tracer.runtime.device.times import EventTimer
from stepscope.tracer.runtime.lifetimes.call_layouts import AssertSink, CallLayouts
from stepscope.tracer.runtime.lifetimes.kept_results import KeptResultsWatch
from stepscope.tracer.runtime.lifetimes.tracker import SPARSE, Tracker, close
from stepscope.tracer.runtime.profiling import StepProfiler
from stepscope.tracer.runtime.red_zones import RedZones
from stepscope.tracer.runtime.ticks import Tick, TickType
from stepscope.tracer.runtime.values.reading import ReadPlan
from stepscope.tracer.schema.gaps import Skipped
from stepscope.tracer.schema.graphs import Graph
from stepscope.tracer.schema.launches import SameTensors, Tensors
from stepscope.tracer.schema.memory import LifetimeLayout, LifetimeMismatch
from stepscope.tracer.schema.record import Record
from stepscope.tracer.wrapper.expectations import Expectations
from stepscope.tracer.wrapper.parsed import PointStorages

FIRST_CALLS = 8
"""Number of first calls of a graph whose storages are always followed, since most faults occur in them."""
ASKING_CALL = 2
"""Call of a graph in which the device's allocator is queried at every allocation, which takes about 20 us each."""


_INT64 = range(-(2**63), 2**63)


class CallSink(ReplaySink, AssertSink, Protocol):
    """The part of the recorder that the hooks need."""

    timer: EventTimer
    cuda_graphs: CudaGraphCalls
    judge: Judge
    profiler: StepProfiler

    @property
    def lifetimes(self) -> Tracker | None:
        """Tracker that follows the storages of calls that begin now; None if none does."""

    @property
    def asserts_lifetimes(self) -> bool: ...
    def tensors(self, record: Tensors) -> None: ...
    def same_tensors(self, record: SameTensors) -> None: ...
    def layout(self, record: LifetimeLayout | LifetimeMismatch) -> None: ...
    def write(self, record: Record) -> None: ...
    def enter(self, frame: object, phase: str | None) -> int: ...
    def called(self, graph: int, frame: FrameType) -> None:
        """Handle an outermost call of `graph`, whose generated code runs in `frame`."""

    def call_raised(self, call: GraphCall, error: BaseException) -> None: ...


class GraphHooks:
    """The hooks of one loaded wrapper. Nothing here raises into the program that runs it."""

    def __init__(
        self,
        sink: CallSink,
        graph: Graph,
        frame: object,
        shapes: Sequence[FunctionShape],
        is_capturing: Callable[[], bool] | None = None,
        points: Sequence[PointStorages] = (),
        expected: Sequence[Expectations] = (),
        tick_type: TickType | None = None,
        backward_pass: Callable[[], int] | None = None,
    ) -> None:
        self.plans: list[ReadPlan | None] = [None]
        """Plans of reads, by the index in the wrapper's code; running code may use an earlier plan."""
        self.judged: Sequence[FunctionPlan] = ()
        """Plans by which the functions are judged, in their order; empty if no step is judged."""
        self.red_zones: RedZones | None = None
        """Red zones around the buffers that the wrapper allocates; None if there are none."""
        self.snodes = {site.site: site.snodes or [] for site in graph.sites}
        """Operations of the schedule that each launch site computes."""
        self.sink, self._frame, self._phase = sink, frame, graph.phase
        self._graph, self._dynamic, self._shapes = graph.graph, graph.dynamic, shapes
        self._symbols = len(graph.symbols)
        self.tick_type = tick_type
        """Type of the compiled function that times launches; None if the wrapper's code has Python statements."""
        self._is_capturing = is_capturing
        self._backward_pass = backward_pass if graph.phase == "forward" else None
        self._has_told_replays = False
        self._look = bytearray(b"\x01" * len(graph.sites))
        self._outputs_from = [len(site.arguments) - len(site.outputs) for site in graph.sites]
        self._wanted: bytearray | None = self._look
        """Sites whose arguments are recorded; None once all are recorded in a graph without dynamic sizes."""
        self._forms = ArgumentForms(graph.graph, [len(site.arguments) for site in graph.sites])
        self._points = points
        named = (device for point in points for device in point.devices)
        self._device = next((device for device in named if device.startswith("cuda:")), None)
        self._device_index = int(self._device.rpartition(":")[2]) if self._device is not None else None
        self._calls = 0
        self._layouts = CallLayouts(graph.graph, points, expected)
        self._kept_results = KeptResultsWatch(graph.graph, graph.sites, points)
        self._sharings = 0
        """Number of new ways in which inputs shared storages; after each, arguments are described again."""
        self._observed_by: tuple[Tracker, Callable[[GraphCall, int, Sequence[Any]], None]] | None = None

    def begin(self, function: int, plan: int = 0) -> GraphCall:
        entered = perf_counter_ns()
        stack, sink = this_thread.stack, self.sink
        computed_ns = thread_time_ns() if not stack else 0
        parent = stack[-1] if stack and stack[-1].sink is sink else None
        call = GraphCall(self._graph, function, self._wanted, parent)
        call.hooks, call.computed_ns = self, computed_ns
        shape, ring = self._shapes[function], sink.ring
        call.cells = shape.scratch
        if parent.is_recorded if parent is not None else sink.is_on:
            sink.running[call.number] = call
        else:
            call.is_recorded, call.look = False, None
        try:
            call.thread = this_thread.ident
            call.step = parent.step if parent else sink.enter(self._frame, self._phase)
            if self._is_capturing is not None and self._is_capturing():
                call.state = "captured"
            if self._backward_pass is not None and self._backward_pass() >= 0:
                call.in_backward = True
            if call.is_recorded:
                if parent is None:
                    sink.called(self._graph, sys._getframe(1))
                ring.begin(call, shape)
                self._prepare(call, self.plans[plan], parent)
        except Exception as error:
            sink.failed("begin", error)
        if self.tick_type is not None:
            call.tick = self._tick(call)
        stack.append(call)
        call.start_ns = perf_counter_ns()
        ring.started(call, shape)
        call.cost_ns = call.start_ns - entered
        if len(stack) == 1 and (left := this_thread.left) is not None:
            call.gap = left[0], left[1] + call.cost_ns, computed_ns - left[2], left[3]
        return call

    def _prepare(self, call: GraphCall, reads: ReadPlan | None, parent: GraphCall | None) -> None:
        """Decide what is recorded of a call besides its launches."""
        if self._is_capturing is not None:
            if call.state == "captured":
                call.mark = self.sink.cuda_graphs.counter()
            elif not self.sink.profiler.is_running:  # it would see the work that keeps the device busy
                call.mark = self.sink.timer.wanted(call)
            flag = self.sink.marks.begin(call, self._device_index)
            if flag is not None:
                call.flag, call.due = flag, flag.due
        if reads is not None and (call.state == "captured" or reads.wants_step(call.step)):
            at_once = reads.writes_at_once and not self._shapes[call.function].has_loops
            if call.state == "captured":
                call.read = reads.read_captured
            else:
                call.read = reads.read_at_once if at_once else reads.reader_of(call)
        if self.judged and call.state == "captured":
            self.sink.judge.captured(call.graph)
        elif self.judged:
            call.judge = self.sink.judge.begin(call.step, self.judged[call.function])
        lifetimes = self.sink.lifetimes
        if lifetimes is not None and self._wants_lifetimes(lifetimes, call, parent):
            self._follow(lifetimes, call, parent)

    def _tick(self, call: GraphCall) -> Tick:
        tick: Tick | None = call.block.tick if call.block is not None else None
        if tick is None:
            assert self.tick_type is not None
            tick = self.tick_type(call.cells)
            if call.block is not None:
                call.block.tick = tick
        tick.rows = call.rows
        return tick

    def _wants_lifetimes(self, lifetimes: Tracker, call: GraphCall, parent: GraphCall | None) -> bool:
        if parent is not None and parent.graph == call.graph:  # a part of its parent
            return parent.life is not None
        if not lifetimes.is_on:
            return False
        self._calls += 1
        return self._calls <= FIRST_CALLS or call.step % lifetimes.every == 0

    def _observer(self, lifetimes: Tracker) -> Callable[[GraphCall, int, Sequence[Any]], None]:
        if self._observed_by is None or self._observed_by[0] is not lifetimes:
            self._observed_by = lifetimes, lifetimes.observer(self, self._points)
        return self._observed_by[1]

    def _follow(self, lifetimes: Tracker, call: GraphCall, parent: GraphCall | None) -> None:
        place = (self._frame, self._phase, call.function) if call.state != "captured" else None
        call.life, call.see_storages, call.tracker = lifetimes.life(call, place), self._observer(lifetimes), lifetimes
        if parent is not None and parent.life is not None:
            parent.life.child = call.life
        frees_inputs = self._calls <= FIRST_CALLS and self._layouts.frees_inputs(call.function)
        call.life.asks_owner = frees_inputs or self._kept_results.wants(self._calls)
        if self.sink.asserts_lifetimes and (watch := self._layouts.watch(call.function)) is not None:
            call.watch, call.look = watch, bytearray(b"\x01" * len(self._look))  # `before` is called at each launch
        if self._is_capturing is not None:
            call.life.asks_allocator = self._calls == ASKING_CALL
            call.life.device = self._device
            if self._asks_allocator(call):
                lifetimes.ask_allocator(call, self._device)

    def _asks_allocator(self, call: GraphCall) -> bool:
        """Return whether the allocator is queried at the begin and the end of a call."""
        return self._is_capturing is not None and (self._calls <= FIRST_CALLS or call.step % SPARSE == 0)

    def _say_replays(self) -> None:
        if not self._has_told_replays:
            self._has_told_replays = True
            why = "it was captured in a CUDA graph, and the start of the capture was not seen"
            self.sink.skipped(Skipped("launches of CUDA graph replays", why, self._graph))

    def end(self, call: GraphCall) -> None:
        call.end_ns = perf_counter_ns()
        try:
            stack = this_thread.stack
            while stack and (other := stack.pop()) is not call:
                self.sink.ring.drop(other)
                self.sink.running.pop(other.number, None)
            if call.state == "captured" and not self.sink.cuda_graphs.add(
                call, lambda: self.sink.enter(self._frame, self._phase), lambda: self.plans[-1]
            ):
                self._say_replays()
            judged, call.judge = call.judge, None  # it has tensors, and the call waits until it is written
            if judged is not None and call.number in self.sink.running:  # else the recording has ended meanwhile
                self.sink.judge.end(judged, call.graph, call.number, call.step)
            if call.is_recorded:
                self._end_recorded(call)
            if call.look is not None and not self._dynamic and not any(call.look):
                self._wanted = None
        except Exception as error:
            self.sink.failed("end", error)
        if not this_thread.stack:
            computed_ns = thread_time_ns()
            own_ns = perf_counter_ns() - call.end_ns
            this_thread.left = call.number, own_ns, computed_ns, computed_ns - call.computed_ns
        if self.sink.asserts_lifetimes:
            self._layouts.assert_ended(call, self.sink)

    def raised(self, call: GraphCall, error: BaseException) -> None:
        """Record an exception that is leaving `call`."""
        call.state = "raised"
        if call.is_recorded:
            try:
                self.sink.call_raised(call, error)
            except Exception as failure:
                self.sink.failed("raised", failure)

    def _end_recorded(self, call: GraphCall) -> None:
        if call.number not in self.sink.running:  # the recording has ended meanwhile, and has written the call
            return
        try:
            self._conclude(call)
        finally:
            self.sink.finish(call)
        if self._is_capturing is not None:
            self.sink.timer.ended(call)

    def _conclude(self, call: GraphCall) -> None:
        self.sink.ring.end(call, self._shapes[call.function])
        if call.flag is not None:
            call.flag(call)
        if call.life is not None and call.tracker is not None:
            if self._asks_allocator(call):
                call.tracker.ask_allocator(call, self._device)
            self.lay_out(call, call.tracker)
            call.cost_ns += self._observer_ns()

    def lay_out(self, call: GraphCall, tracker: Tracker) -> None:
        """Write the lifetime layout of `call` if it is new."""
        call.layout = self._layouts.of(call, tracker, self.sink.layout)
        if self._layouts.sharings_after_first != self._sharings:
            self._sharings = self._layouts.sharings_after_first
            self._look[:] = b"\x01" * len(self._look)
            self._wanted = self._look

    def _observer_ns(self) -> int:
        """Return the time that a compiled observer has taken, or 0: `see_storages` adds its own time to the call."""
        taken: Callable[[], int] | None = getattr(self._observed_by and self._observed_by[1], "taken", None)
        return taken() if taken is not None else 0

    def see_storages(self, call: GraphCall, point: int, values: Sequence[Any]) -> None:
        """Record the storages at a point that the wrapper has reached."""
        started = perf_counter_ns()
        try:
            if call.tracker is not None:
                call.tracker.see(call, point, self._points[point], values)
            if call.life is not None and call.life.asks_owner:
                self.see_inputs(call, point, values)
        except Exception as error:
            self.lost(call, error)
        call.cost_ns += perf_counter_ns() - started

    def see_inputs(self, call: GraphCall, point: int, values: Sequence[Any]) -> None:
        place = self._points[point]
        if place.kind != "input":
            return
        if self._layouts.frees_inputs(call.function):
            call.owned = self._layouts.owned(call.function, place, values)
        if self._kept_results.wants(self._calls):
            for record in self._kept_results.look(call, place, values):
                self.sink.write(record)

    def lost(self, call: GraphCall, error: Exception) -> None:
        """Stop following the storages of `call` after an error."""
        close(call)
        call.life = call.see_storages = None
        self.sink.failed("lifetimes", error)

    def ask_allocator(self, call: GraphCall, device: str | None) -> None:
        if call.tracker is not None:
            call.tracker.ask_allocator(call, device)

    def symbols(self, call: GraphCall, numbers: tuple[int, ...], values: Sequence[object]) -> None:
        """Record the values of some of `Graph.symbols`, which the wrapper has just computed."""
        if not call.is_recorded:
            return
        started = perf_counter_ns()
        try:
            found = SymbolValues(numbers, len(call.rows) // 3, plain_values(values))
            call.symbols.append(found)
            self.sink.ring.symbols(call, found, self._symbols)
        except Exception as error:
            self.sink.failed("symbols", error)
        call.cost_ns += perf_counter_ns() - started

    def before(self, call: GraphCall, site: int, values: Sequence[object]) -> None:
        """Record the arguments of a launch that is about to start."""
        self._record(call, site, values, 0)
        if not self._dynamic and self._outputs_from[site] == len(values):
            self._look[site] = 0
        if call.watch is not None:
            self._layouts.assert_now(call, self.sink)

    def after(self, call: GraphCall, site: int, values: Sequence[object]) -> None:
        """Record the tensors that a launch statement has bound to names."""
        self._record(call, site, values, self._outputs_from[site])
        if not self._dynamic:
            self._look[site] = 0

    def _record(self, call: GraphCall, site: int, values: Sequence[object], first: int) -> None:
        started = perf_counter_ns()
        try:
            form = self._sharings, *map(signature_of, values)
            record = self._forms.record_of(call.number, site, first, form, lambda: described(first, values))
            if isinstance(record, Tensors):
                self.sink.tensors(record)
                if self._forms.is_full(site, first):
                    self._look[site] = 0
                    self.sink.skipped(Skipped("sizes of a launch site", TOO_MANY, self._graph))
            elif record is not None:
                self.sink.same_tensors(record)
        except Exception as error:
            self._look[site] = 0
            self.sink.failed("arguments", error)
        finally:
            call.cost_ns += perf_counter_ns() - started


def plain_values(values: Iterable[object]) -> tuple[int | float | str | None, ...]:
    """Return `values` in JSON's types, with None for those that are not numbers; keeps none of them alive."""
    return tuple(map(_plain, values))


def _plain(value: object) -> int | float | str | None:
    if isinstance(value, bool) or (type(value) is int and value in _INT64):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else str(float(value))
    return None
