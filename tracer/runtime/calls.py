"""The graph calls that run on each thread, and all that is known of one call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from copy import copy
from itertools import count
from time import perf_counter_ns
from typing import Any, Protocol
from weakref import ref

from stepscope.tracer.log.ring_blocks import RingBlock
from stepscope.tracer.log.symbol_values import SymbolValues
from stepscope.tracer.runtime import argument_forms
from stepscope.tracer.runtime.device.marks import Flag
from stepscope.tracer.runtime.lifetimes.layout_builder import LifetimeWatch
from stepscope.tracer.runtime.lifetimes.life import Life, close
from stepscope.tracer.runtime.lifetimes.mismatches import FoundMismatches
from stepscope.tracer.runtime.lifetimes.tracker import Tracker
from stepscope.tracer.runtime.ticks import Tick
from stepscope.tracer.runtime.values.rows import Reading
from stepscope.tracer.schema.ring_format import UNFINISHED


class CallOwner(Protocol):
    """The hooks that began a call."""

    @property
    def sink(self) -> object:
        """The recording that the call belongs to."""

    def lay_out(self, call: GraphCall, tracker: Tracker) -> None:
        """Write what the storages of `call` did, if that was new."""


class _Thread(threading.local):
    """The calls that are running on a thread, outermost first."""

    def __init__(self) -> None:
        self.stack: list[GraphCall] = []
        self.ident = threading.get_native_id()


this_thread = _Thread()
_call_numbers = count()


def running_call() -> GraphCall | None:
    """Return the innermost call that runs on this thread."""
    return this_thread.stack[-1] if this_thread.stack else None


def recorded_calls_of_this_thread() -> list[GraphCall]:
    """Return the running calls of this thread that go into the log, outermost first."""
    return [call for call in this_thread.stack if call.is_recorded]


def forget_parent_process() -> None:
    """Give up what belongs to the parent of a forked child: its ring, its log and the number of its thread."""
    this_thread.ident = threading.get_native_id()
    argument_forms.forget_parent_process()
    for call in this_thread.stack:
        close(call)  # the storages that other calls saw first are in the parent's log
        call.block = call.symbol_block = call.flag = call.life = call.tracker = None


_NO_CELLS = memoryview(b"").cast("q")
_NEVER = (1 << 62,)


class GraphCall:
    """One run of one function of a wrapper."""

    __slots__ = (
        "block", "cells", "cost_ns", "device_times", "due", "end_ns", "flag", "found", "function", "graph",
        "graph_slot", "hooks", "is_recorded", "layout", "life", "look", "mark", "now", "number", "owned",
        "parent", "read", "read_at", "readings", "rows", "rows_written",
        "see_storages", "start_ns", "state", "stats_ns", "step",
        "stream", "symbol_block", "symbols", "thread", "tick", "tracker", "watch",
    )  # fmt: skip

    def __init__(self, graph: int, function: int, look: bytearray | None, parent: GraphCall | None) -> None:
        self.graph, self.function, self.parent = graph, function, parent
        self.number = next(_call_numbers)
        self.rows: list[int] = []
        """Site, start and end of each launch, one after the other; the end is missing where a launch raised."""
        self.symbols: list[SymbolValues] = []
        """The values of the numbers that the wrapper computes."""
        self.symbol_block: RingBlock | None = None
        """The block of the launch ring that holds the symbols; None if there is none."""
        self.look = look
        """For each site 1 while its arguments are to be looked at; None if none of them are."""
        self.now = perf_counter_ns
        self.read: Callable[[GraphCall, int, Sequence[Any]], None] | None = None
        """Reads tensors at a point of the wrapper; None in a call that reads nothing."""
        self.readings: list[Reading] = []
        self.rows_written = 0
        """How many value rows of this call are in the log already."""
        self.read_at: list[int] = []
        """How many launches came before each reading; only for calls that are captured into a CUDA graph."""
        self.device_times: Callable[[], tuple[list[int], list[int]]] | None = None
        """Returns launches (positions in this call) and their times on the device (ns) once the readings are there."""
        self.mark: Callable[[], None] | None = None
        """Takes the time of the device before and after each launch; None in a call whose launches are not timed."""
        self.see_storages: Callable[[GraphCall, int, Sequence[Any]], None] | None = None
        """Looks at storages at a point of the wrapper; None in a call whose storages are not followed."""
        self.life: Life | None = None
        self.tracker: Tracker | None = None
        """The tracker that follows the storages of this call."""
        self.owned: dict[str, ref[Any]] = {}
        """The storages of inputs that nobody else holds, by name; found in the first calls of a graph."""
        self.layout: int | None = None
        """The number of its lifetime layout, once the call has ended."""
        self.watch: LifetimeWatch | None = None
        """Compares lifetimes at each launch, in order to raise there; None in a call that does not raise."""
        self.found: FoundMismatches | None = None
        """The lifetime mismatches of the call, once they are known."""
        self.block: RingBlock | None = None
        """The block of the launch ring that shows this call; None if there is none."""
        self.cells: memoryview = _NO_CELLS
        """The start and the end of each launch site of the function, in the launch ring."""
        self.tick: Tick | None = None
        """Writes `rows` and `cells`; None where the code of the wrapper does it itself."""
        self.flag: Flag | None = None
        """Sends a mark down the stream after some launches; None in a call that sends none."""
        self.due: Sequence[int] = _NEVER
        """The time (ns) from which on `flag` is to be called again."""
        self.stream = self.graph_slot = -1
        """What the device marks for this call, as the launch ring counts it; -1 for nothing."""
        self.hooks: CallOwner | None = None
        """The hooks that began the call; None for a replay of a CUDA graph."""
        self.is_recorded = True
        """The call goes into the log whatever is configured while it runs, and so do the calls inside it."""
        self.state = "ok"
        self.stats_ns = 0
        self.step = self.thread = self.start_ns = self.end_ns = self.cost_ns = 0

    @property
    def sink(self) -> object:
        """The recording that the call belongs to."""
        return self.hooks.sink if self.hooks is not None else None

    def raised(self) -> None:
        self.state = "raised"

    def unfinished(self, now_ns: int) -> GraphCall:
        """Return a copy of a call that still runs, as a call that has ended."""
        found = copy(self)
        found.rows, found.readings, found.symbols = self.rows[:], self.readings[:], self.symbols[:]
        found.block = found.symbol_block = found.flag = found.mark = None
        found.end_ns, found.state = now_ns, UNFINISHED
        if self.hooks is not None and self.tracker is not None:
            self.hooks.lay_out(found, self.tracker)
        return found
