"""Keeps the graph calls that run in each thread, and all data of one call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from copy import copy
from itertools import count
from time import perf_counter_ns
from typing import Any, Protocol
from weakref import ref

from stepscope.tracer.judge.judge import GuardedJudge
from stepscope.tracer.log.launch_ring import RingBlock, SymbolValues
from stepscope.tracer.runtime import argument_forms
from stepscope.tracer.runtime.device.marks import Flag
from stepscope.tracer.runtime.lifetimes.mismatches import FoundMismatches, LifetimeWatch
from stepscope.tracer.runtime.lifetimes.tracker import Life, Tracker, close
from stepscope.tracer.runtime.ticks import Tick
from stepscope.tracer.runtime.values.rows import Reading
from stepscope.tracer.schema.ring_format import UNFINISHED


class CallOwner(Protocol):
    """The hooks that began a call."""

    @property
    def sink(self) -> object:
        """The recording that the call belongs to."""

    def lay_out(self, call: GraphCall, tracker: Tracker) -> None:
        """Write the lifetime layout of `call` if it is new."""


class _Thread(threading.local):
    """The calls that are running in a thread, outermost first."""

    def __init__(self) -> None:
        self.stack: list[GraphCall] = []
        self.left: tuple[int, int, int, int] | None = None
        """The number of the last outermost call, what the recorder took after it, the thread's CPU time then, and that
        part of it which passed since the call began."""
        self.ident = threading.get_native_id()


this_thread = _Thread()
_call_numbers = count()


def running_call() -> GraphCall | None:
    """Return the innermost call that runs in this thread, or None."""
    return this_thread.stack[-1] if this_thread.stack else None


def recorded_calls_of_this_thread() -> list[GraphCall]:
    """Return the running calls of this thread that are recorded, outermost first."""
    return [call for call in this_thread.stack if call.is_recorded]


def forget_parent_process() -> None:
    """Drop references to the parent process in a forked child: its ring, its log and its thread id."""
    this_thread.ident, this_thread.left = threading.get_native_id(), None
    argument_forms.forget_parent_process()
    for call in this_thread.stack:
        close(call)  # the storages that other calls saw first are in the parent's log
        call.block = call.symbol_block = call.flag = call.life = call.tracker = None


_NO_CELLS = memoryview(b"").cast("q")
_NEVER = (1 << 62,)


class GraphCall:
    """One run of one function of a wrapper."""

    __slots__ = (
        "block", "cells", "computed_ns", "cost_ns", "device_times", "due", "end_ns", "flag", "found", "function",
        "gap", "graph",
        "graph_slot", "hooks", "in_backward", "is_recorded", "judge", "layout", "life", "look", "mark", "now", "number",
        "owned", "parent", "read", "read_at", "readings", "rows", "rows_written",
        "see_storages", "start_ns", "state", "stats_ns", "step",
        "stream", "symbol_block", "symbols", "thread", "tick", "tracker", "watch",
    )  # fmt: skip

    def __init__(self, graph: int, function: int, look: bytearray | None, parent: GraphCall | None) -> None:
        self.graph, self.function, self.parent = graph, function, parent
        self.number = next(_call_numbers)
        self.rows: list[int] = []
        """Site, start and end of each launch, one after the other; the end is missing if the launch raised."""
        self.symbols: list[SymbolValues] = []
        """Values of the numbers that the wrapper computes."""
        self.symbol_block: RingBlock | None = None
        """Block of the launch ring with the symbols; None if there is none."""
        self.look = look
        """One byte per site, 1 if its arguments are to be recorded; None if none are."""
        self.now = perf_counter_ns
        self.read: Callable[[GraphCall, int, Sequence[Any]], None] | None = None
        """Function that reads tensors at a point of the wrapper; None if the call reads nothing."""
        self.computed_ns = 0
        """The CPU time of the thread when an outermost call began (ns)."""
        self.gap: tuple[int, int, int, int] | None = None
        """The call before in this thread, since its end the recorder's time and the CPU time of the thread, and the CPU
        time of the thread in that call (ns)."""
        self.judge: GuardedJudge | None = None
        """Judge of the call; None if it is not judged."""
        self.readings: list[Reading] = []
        self.rows_written = 0
        """Number of value rows of this call that are already in the log."""
        self.read_at: list[int] = []
        """Number of launches before each reading; only for calls that are captured into a CUDA graph."""
        self.device_times: Callable[[], tuple[list[int], list[int]]] | None = None
        """Function that returns launches (positions in this call) and their device times (ns) from the readings."""
        self.mark: Callable[[], None] | None = None
        """Function that records an event before and after each launch; None if the launches are not timed."""
        self.see_storages: Callable[[GraphCall, int, Sequence[Any]], None] | None = None
        """Function that records storages at a point of the wrapper; None if they are not followed."""
        self.life: Life | None = None
        self.tracker: Tracker | None = None
        """Tracker that follows the storages of this call."""
        self.owned: dict[str, ref[Any]] = {}
        """Storages of inputs without other owners, by name; found in the first calls of a graph."""
        self.layout: int | None = None
        """Number of the call's lifetime layout, once the call has ended."""
        self.watch: LifetimeWatch | None = None
        """Watch that compares lifetimes at each launch, in order to raise there; None if the call does not raise."""
        self.found: FoundMismatches | None = None
        """Lifetime mismatches of the call, once they are known."""
        self.block: RingBlock | None = None
        """Block of the launch ring with this call; None if there is none."""
        self.cells: memoryview = _NO_CELLS
        """Start and end of each launch site of the function, in the launch ring."""
        self.tick: Tick | None = None
        """Function that writes `rows` and `cells`; None if the code of the wrapper writes them itself."""
        self.flag: Flag | None = None
        """Function that enqueues a mark after some launches; None if the call enqueues none."""
        self.due: Sequence[int] = _NEVER
        """Time (ns) from which `flag` is to be called again."""
        self.stream = self.graph_slot = -1
        """Indices, in the launch ring, of the marks for this call; -1 if there is none."""
        self.hooks: CallOwner | None = None
        """Hooks that began the call; None for a replay of a CUDA graph."""
        self.is_recorded = True
        """Whether the call and the calls nested in it are recorded; does not change while the call runs."""
        self.in_backward = False
        """Whether a forward call began while a backward pass ran."""
        self.state = "ok"
        self.stats_ns = 0
        self.step = self.thread = self.start_ns = self.end_ns = self.cost_ns = 0

    @property
    def sink(self) -> object:
        """The recording that the call belongs to."""
        return self.hooks.sink if self.hooks is not None else None

    def unfinished(self, now_ns: int) -> GraphCall:
        """Return a copy of a running call as a call that has ended at `now_ns`."""
        found = copy(self)
        found.rows, found.readings, found.symbols = self.rows[:], self.readings[:], self.symbols[:]
        found.block = found.symbol_block = found.flag = found.mark = None
        found.end_ns, found.state = now_ns, UNFINISHED
        if self.hooks is not None and self.tracker is not None:
            self.hooks.lay_out(found, self.tracker)
        return found
