"""What generated code calls: the begin and end of each graph call, and what its arguments are.

A launch itself calls nothing here: the wrapper's own code (`stepscope.tracer.inductor.code_swap`), or what is compiled
for it (`stepscope.tracer.runtime.ticks`), adds (site, start, end) to the call's `rows`. So a launch costs two readings
of the clock, three items of a list, and two of the call's `cells` in the launch ring, which show that it has begun and
returned even when the process dies.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from copy import copy
from itertools import count
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol
from weakref import ref

from stepscope.tracer.log.launch_ring import Block, LaunchRing, Shape
from stepscope.tracer.runtime import argument_forms
from stepscope.tracer.runtime.argument_forms import TOO_MANY, ArgumentForms
from stepscope.tracer.runtime.launch_columns import described, signature_of
from stepscope.tracer.runtime.lifetimes.expected import Expectations
from stepscope.tracer.runtime.lifetimes.layouts import Layouts
from stepscope.tracer.runtime.lifetimes.tracker import SPARSE, close
from stepscope.tracer.schema.records import (
    Graph,
    LifetimeLayout,
    LifetimeMismatch,
    SameTensors,
    Skipped,
    Tensors,
)
from stepscope.tracer.schema.ring_format import UNFINISHED
from stepscope.tracer.symbol_values import SymbolValues, plain_values

if TYPE_CHECKING:
    from stepscope.tracer.runtime.device.cuda_graphs import CapturedCalls
    from stepscope.tracer.runtime.device.marks import DeviceMarks, Flag
    from stepscope.tracer.runtime.device.times import EventTimer
    from stepscope.tracer.runtime.lifetimes.layouts import Found, Watch
    from stepscope.tracer.runtime.lifetimes.tracker import Life, Place, Tracker
    from stepscope.tracer.runtime.ticks import Tick, TickType
    from stepscope.tracer.runtime.values.reading import Plan, Reading

FIRST_CALLS = 8
"""Of a graph, whose storages are followed in any case: most of what goes wrong shows in them."""
ASKING_CALL = 2
"""Of a graph: in which a device's allocator is asked at every allocation; it takes some 20 us."""


class Sink(Protocol):
    """What the hooks need of the recorder."""

    timer: EventTimer
    ring: LaunchRing
    marks: DeviceMarks
    captured: CapturedCalls
    running: dict[int, Call]
    """Calls that are to be in the log and are not handed on yet, by their numbers."""

    @property
    def lifetimes(self) -> Tracker | None:
        """What follows the storages of calls that begin now."""

    @property
    def is_on(self) -> bool:
        """Calls that begin now are to be in the log."""

    @property
    def asserts_lifetimes(self) -> bool: ...
    def launch_words(self, graph: int, site: int) -> str: ...
    def finish(self, call: Call) -> None: ...
    def tensors(self, record: Tensors) -> None: ...
    def same_tensors(self, record: SameTensors) -> None: ...
    def layout(self, record: LifetimeLayout | LifetimeMismatch) -> None: ...
    def skipped(self, record: Skipped) -> None: ...
    def enter(self, frame: object, phase: str | None) -> int: ...
    def failed(self, where: str, error: BaseException) -> None: ...


class _Thread(threading.local):
    """The calls that are running on a thread, outermost first."""

    def __init__(self) -> None:
        self.stack: list[Call] = []
        self.ident = threading.get_native_id()


_thread = _Thread()
_call_numbers = count()


def running_call() -> Call | None:
    """The innermost call that runs on this thread."""
    return _thread.stack[-1] if _thread.stack else None


def calls_of_this_thread() -> list[Call]:
    """That are to be in the log, outermost first."""
    return [call for call in _thread.stack if call.is_recorded]


def forget_parent_process() -> None:
    """In a forked child: the thread that goes on has another number there, and the ring is the parent's."""
    _thread.ident = threading.get_native_id()
    argument_forms.forget_parent_process()
    for call in _thread.stack:
        close(call)  # what others met first is in the parent's log
        call.block = call.symbol_block = call.flag = call.life = call.tracker = None


_NO_CELLS = memoryview(b"").cast("q")
_NEVER = (1 << 62,)


class Call:
    """One run of one function of a wrapper."""

    __slots__ = (
        "block", "cells", "cost_ns", "device_times", "due", "end_ns", "flag", "found", "function", "graph",
        "graph_slot", "hooks", "is_recorded", "layout", "life", "look", "mark", "meet", "now", "number", "owned",
        "parent", "read", "read_at", "readings", "rows", "rows_written", "start_ns", "state", "stats_ns", "step",
        "stream", "symbol_block", "symbols", "thread", "tick", "tracker", "watch",
    )  # fmt: skip

    def __init__(self, graph: int, function: int, look: bytearray | None, parent: Call | None) -> None:
        self.graph, self.function, self.parent = graph, function, parent
        self.number = next(_call_numbers)
        self.rows: list[int] = []
        """Flat: site, start, end of each launch; the end is missing where a launch raised."""
        self.symbols: list[SymbolValues] = []
        """What the numbers that the wrapper computes have come to be."""
        self.symbol_block: Block | None = None
        """What stands of them in the launch ring; None: nothing."""
        self.look = look
        """Per site: 1 while its arguments are to be looked at; None: none of them."""
        self.now = perf_counter_ns
        self.read: Callable[[Call, int, Sequence[Any]], None] | None = None
        """Reads tensors at a place of the wrapper; None: not in this call."""
        self.readings: list[Reading] = []
        self.rows_written = 0
        """Of what was read."""
        self.read_at: list[int] = []
        """How many launches came before each reading; only of calls that are captured into a CUDA graph."""
        self.device_times: Callable[[], tuple[list[int], list[int]]] | None = None
        """Launches (positions in this call) and their times on the device (ns), once the readings have come."""
        self.mark: Callable[[], None] | None = None
        """Times the device before and after each launch; None: not in this call."""
        self.meet: Callable[[Call, int, Sequence[Any]], None] | None = None
        """Looks at storages at a place of the wrapper; None: not in this call."""
        self.life: Life | None = None
        self.tracker: Tracker | None = None
        """What follows its storages."""
        self.owned: dict[str, ref[Any]] = {}
        """Storages of inputs that nobody else holds, by their names; looked for in the first calls of a graph."""
        self.layout: int | None = None
        """Of its lifetimes, once it has ended."""
        self.watch: Watch | None = None
        """Compares its lifetimes at each launch, to raise there; None: not in this call."""
        self.found: Found | None = None
        """What is wrong with its lifetimes, once that is known."""
        self.block: Block | None = None
        """What stands of it in the launch ring; None: nothing."""
        self.cells: memoryview = _NO_CELLS
        """Of the launch ring: start and end of each launch site of the function."""
        self.tick: Tick | None = None
        """Writes `rows` and `cells`; None: the code of the wrapper does it itself."""
        self.flag: Flag | None = None
        """Sends a mark down the stream after some launches; None: not in this call."""
        self.due: Sequence[int] = _NEVER
        """From when on it is to be called again, ns."""
        self.stream = self.graph_slot = -1
        """What the device marks for it, as the launch ring counts them; -1: nothing."""
        self.hooks: GraphHooks | None = None
        """That began it; None: a CUDA graph did."""
        self.is_recorded = True
        """It is to be in the log, whatever is asked for while it runs; so are the calls inside it."""
        self.state = "ok"
        self.stats_ns = 0
        self.step = self.thread = self.start_ns = self.end_ns = self.cost_ns = 0

    @property
    def sink(self) -> Sink | None:
        """Of the recording that it belongs to."""
        return self.hooks.sink if self.hooks is not None else None

    def raised(self) -> None:
        self.state = "raised"

    def unfinished(self, now_ns: int) -> Call:
        """A copy of a call that still runs, as one that has ended."""
        found = copy(self)
        found.rows, found.readings, found.symbols = self.rows[:], self.readings[:], self.symbols[:]
        found.block = found.symbol_block = found.flag = found.mark = None
        found.end_ns, found.state = now_ns, UNFINISHED
        if self.hooks is not None and self.tracker is not None:
            self.hooks.lay_out(found, self.tracker)
        return found


class GraphHooks:
    """The hooks of one loaded wrapper. Nothing here raises into the program that runs it."""

    def __init__(
        self,
        sink: Sink,
        graph: Graph,
        frame: object,
        shapes: Sequence[Shape],
        is_capturing: Callable[[], bool] | None = None,
        places: Sequence[Place] = (),
        expected: Sequence[Expectations] = (),
        tick_type: TickType | None = None,
    ) -> None:
        self.plans: list[Plan | None] = [None]
        """What the code of the wrapper names by its index; code that still runs may name an old one."""
        self.sink, self._frame, self._phase = sink, frame, graph.phase
        self._graph, self._dynamic, self._shapes = graph.graph, graph.dynamic, shapes
        self._symbols = len(graph.symbols)
        self.tick_type = tick_type
        """None: the code of the wrapper is to do without."""
        self._is_capturing = is_capturing
        self._captured = False
        self._look = bytearray(b"\x01" * len(graph.sites))
        self._outputs_from = [len(site.arguments) - len(site.outputs) for site in graph.sites]
        self._wanted: bytearray | None = self._look
        """None once every site of a graph without dynamic sizes has been looked at."""
        self._forms = ArgumentForms(graph.graph, [len(site.arguments) for site in graph.sites])
        self._places = places
        named = (device for place in places for device in place.devices)
        self._device = next((device for device in named if device.startswith("cuda:")), None)
        self._device_index = int(self._device.rpartition(":")[2]) if self._device is not None else None
        self._calls = 0
        self._layouts = Layouts(graph.graph, places, expected)
        self._met_by: tuple[Tracker, Callable[[Call, int, Sequence[Any]], None]] | None = None

    def begin(self, function: int, plan: int = 0) -> Call:
        entered = perf_counter_ns()
        stack, sink = _thread.stack, self.sink
        parent = stack[-1] if stack and stack[-1].sink is sink else None
        call = Call(self._graph, function, self._wanted, parent)
        call.hooks = self
        shape, ring = self._shapes[function], sink.ring
        call.cells = shape.scratch
        if parent.is_recorded if parent is not None else sink.is_on:
            sink.running[call.number] = call
        else:
            call.is_recorded, call.look = False, None
        try:
            call.thread = _thread.ident
            call.step = parent.step if parent else sink.enter(self._frame, self._phase)
            if self._is_capturing is not None and self._is_capturing():
                call.state = "captured"
            if call.is_recorded:
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
        return call

    def _prepare(self, call: Call, reads: Plan | None, parent: Call | None) -> None:
        """What is to be told of a call beside its launches."""
        if self._is_capturing is not None:
            if call.state != "captured":
                call.mark = self.sink.timer.wanted(call)
            flag = self.sink.marks.begin(call, self._device_index)
            if flag is not None:
                call.flag, call.due = flag, flag.due
        if reads is not None and (call.state == "captured" or reads.wants_step(call.step)):
            at_once = reads.writes_at_once and not self._shapes[call.function].has_loops
            read = reads.read_at_once if at_once else reads.read
            call.read = reads.read_captured if call.state == "captured" else read
        lifetimes = self.sink.lifetimes
        if lifetimes is not None and self._wants_lifetimes(lifetimes, call, parent):
            self._follow(lifetimes, call, parent)

    def _tick(self, call: Call) -> Tick:
        tick: Tick | None = call.block.tick if call.block is not None else None
        if tick is None:
            assert self.tick_type is not None
            tick = self.tick_type(call.cells)
            if call.block is not None:
                call.block.tick = tick
        tick.rows = call.rows
        return tick

    def _wants_lifetimes(self, lifetimes: Tracker, call: Call, parent: Call | None) -> bool:
        if parent is not None and parent.graph == call.graph:  # a part of its parent
            return parent.life is not None
        if not lifetimes.is_on:
            return False
        self._calls += 1
        return self._calls <= FIRST_CALLS or call.step % lifetimes.every == 0

    def _meeter(self, lifetimes: Tracker) -> Callable[[Call, int, Sequence[Any]], None]:
        if self._met_by is None or self._met_by[0] is not lifetimes:
            self._met_by = lifetimes, lifetimes.meeter(self, self._places)
        return self._met_by[1]

    def _follow(self, lifetimes: Tracker, call: Call, parent: Call | None) -> None:
        place = (self._frame, self._phase, call.function) if call.state != "captured" else None
        call.life, call.meet, call.tracker = lifetimes.life(call, place), self._meeter(lifetimes), lifetimes
        if parent is not None and parent.life is not None:
            parent.life.child = call.life
        call.life.asks_owner = self._calls <= FIRST_CALLS and self._layouts.frees_inputs(call.function)
        if self.sink.asserts_lifetimes and (watch := self._layouts.watch(call.function)) is not None:
            call.watch, call.look = watch, bytearray(b"\x01" * len(self._look))  # `before` is called at each launch
        if self._is_capturing is not None:
            call.life.asks_allocator = self._calls == ASKING_CALL
            call.life.device = self._device
            if self._asks_allocator(call):
                lifetimes.ask_allocator(call, self._device)

    def _asks_allocator(self, call: Call) -> bool:
        """At the begin and the end of a call."""
        return self._is_capturing is not None and (self._calls <= FIRST_CALLS or call.step % SPARSE == 0)

    def _say_replays(self) -> None:
        if not self._captured:
            self._captured = True
            why = "it was recorded into a CUDA graph whose recording was not seen to begin"
            self.sink.skipped(Skipped("launches of CUDA graph replays", why, self._graph))

    def end(self, call: Call) -> None:
        call.end_ns = perf_counter_ns()
        try:
            stack = _thread.stack
            while stack and (other := stack.pop()) is not call:
                self.sink.ring.drop(other)
                self.sink.running.pop(other.number, None)
            if call.state == "captured" and not self.sink.captured.add(
                call, lambda: self.sink.enter(self._frame, self._phase), lambda: self.plans[-1]
            ):
                self._say_replays()
            if call.is_recorded:
                self._end_recorded(call)
            if call.look is not None and not self._dynamic and not any(call.look):
                self._wanted = None
        except Exception as error:
            self.sink.failed("end", error)
        if self.sink.asserts_lifetimes:
            self._layouts.assert_ended(call, self.sink)

    def _end_recorded(self, call: Call) -> None:
        if call.number not in self.sink.running:  # the recording has ended meanwhile, and has told of the call
            return
        try:
            self._conclude(call)
        finally:
            self.sink.finish(call)
        if self._is_capturing is not None:
            self.sink.timer.ended(call)

    def _conclude(self, call: Call) -> None:
        """What is known of a call now that it has ended."""
        self.sink.ring.end(call, self._shapes[call.function])
        if call.flag is not None:
            call.flag(call)
        if call.life is not None and call.tracker is not None:
            if self._asks_allocator(call):
                call.tracker.ask_allocator(call, self._device)
            self.lay_out(call, call.tracker)
            call.cost_ns += self._meeter_ns()

    def lay_out(self, call: Call, tracker: Tracker) -> None:
        """Write what its storages did, if that was new."""
        call.layout = self._layouts.of(call, tracker, self.sink.layout)

    def _meeter_ns(self) -> int:
        """What a compiled `meet` has taken; the other counts it itself."""
        taken: Callable[[], int] | None = getattr(self._met_by and self._met_by[1], "taken", None)
        return taken() if taken is not None else 0

    def meet(self, call: Call, place: int, values: Sequence[Any]) -> None:
        """Storages that the wrapper has come to have."""
        started = perf_counter_ns()
        try:
            if call.tracker is not None:
                call.tracker.meet(call, place, self._places[place], values)
            if call.life is not None and call.life.asks_owner:
                self.met_inputs(call, place, values)
        except Exception as error:
            self.lost(call, error)
        call.cost_ns += perf_counter_ns() - started

    def met_inputs(self, call: Call, place: int, values: Sequence[Any]) -> None:
        if self._places[place].kind == "input":
            call.owned = self._layouts.owned(call.function, self._places[place], values)

    def lost(self, call: Call, error: Exception) -> None:
        """Its storages cannot be followed."""
        close(call)
        call.life = call.meet = None
        self.sink.failed("lifetimes", error)

    def ask_allocator(self, call: Call, device: str | None) -> None:
        if call.tracker is not None:
            call.tracker.ask_allocator(call, device)

    def symbols(self, call: Call, numbers: tuple[int, ...], values: Sequence[object]) -> None:
        """The wrapper has come to know the values of some of `Graph.symbols`."""
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

    def before(self, call: Call, site: int, values: Sequence[object]) -> None:
        """The arguments of a launch that is about to start."""
        self._record(call, site, values, 0)
        if not self._dynamic and self._outputs_from[site] == len(values):
            self._look[site] = 0
        if call.watch is not None:
            self._layouts.assert_now(call, self.sink)

    def after(self, call: Call, site: int, values: Sequence[object]) -> None:
        """What a launch statement has bound."""
        self._record(call, site, values, self._outputs_from[site])
        if not self._dynamic:
            self._look[site] = 0

    def _record(self, call: Call, site: int, values: Sequence[object], first: int) -> None:
        started = perf_counter_ns()
        try:
            form = tuple(signature_of(value) for value in values)
            record = self._forms.told(call.number, site, first, form, lambda: described(first, values))
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
