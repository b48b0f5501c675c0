"""Keeps the lifetime layouts of a graph's calls, and compares them with the expected ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any, Protocol
from weakref import ref

from stepscope.tracer.inductor.tensor_owners import held_by_call
from stepscope.tracer.runtime.calls import GraphCall
from stepscope.tracer.runtime.lifetimes.holders import find_holders, overlapped
from stepscope.tracer.runtime.lifetimes.mismatches import (
    FoundMismatches,
    LayoutBuilder,
    LifetimeError,
    LifetimeWatch,
    StorageMismatch,
    compare,
    describe_mismatches,
    to_record,
)
from stepscope.tracer.runtime.lifetimes.tracker import Event, Tracker, close
from stepscope.tracer.schema.memory import LifetimeLayout, LifetimeMismatch
from stepscope.tracer.schema.ring_format import UNFINISHED
from stepscope.tracer.wrapper.expectations import Expectations
from stepscope.tracer.wrapper.parsed import PointStorages

MOST_LAYOUTS = 512
"""Maximum number of layouts remembered per graph; with dynamic shapes, each request may have a new one."""
MOST_SHARINGS = 8
"""Maximum number of sets of inputs with shared storages that are told apart for each function."""
MOST_TOLD = 64
"""Maximum number of different mismatches per graph for which holders are searched."""

_layout_numbers = count()
Write = Callable[[LifetimeLayout | LifetimeMismatch], None]


class AssertSink(Protocol):
    """The part of the recorder that is needed to raise an error."""

    def describe_launch(self, graph: int, site: int) -> str: ...
    def failed(self, where: str, error: BaseException) -> None: ...


class CallLayouts:
    """The lifetime layouts of the calls of one graph."""

    def __init__(self, graph: int, points: Sequence[PointStorages], expected: Sequence[Expectations] = ()) -> None:
        """Create the layouts; `expected` has an entry per function of the graph, or is empty to compare nothing."""
        self._graph, self._points, self._expected = graph, points, expected
        self._problems: dict[int, list[StorageMismatch]] = {}
        """Mismatches of each layout."""
        self._told: set[frozenset[tuple[str, str]]] = set()
        self._tracker: Tracker | None = None
        self._numbers: dict[tuple[int, bool, bool, object], int] = {}
        self._sharings: dict[int, set[frozenset[str]]] = {}
        """For each function, the sets of inputs that had no storage of their own in a call."""
        self.sharings_after_first = 0
        """Number of such sets, without the first one of each function."""

    def frees_inputs(self, function: int) -> bool:
        return function < len(self._expected) and bool(self._expected[function].inputs)

    def owned(self, function: int, place: PointStorages, values: Sequence[Any]) -> dict[str, ref[Any]]:
        """Return the inputs that the function may free and nothing else refers to; call it before any other code."""
        wanted = self._expected[function].inputs
        return {
            name: ref(value.untyped_storage())
            for name, value, is_held in zip(place.names, values, held_by_call(values), strict=True)
            if is_held and name in wanted
        }

    def watch(self, function: int) -> LifetimeWatch | None:
        """Return the watch for a call of `function`, or None if it has no expectations."""
        if function >= len(self._expected):
            return None
        return LifetimeWatch(self._graph, function, self._points, self._expected[function])

    def assert_now(self, call: GraphCall, sink: AssertSink) -> None:
        """Raise LifetimeError before a launch if a storage's lifetime has a mismatch so far."""
        try:
            text = self._wrong_now(call, sink)
        except Exception as error:
            call.watch, text = None, None
            sink.failed("lifetimes", error)
        if text is not None:
            raise LifetimeError(text)

    def assert_ended(self, call: GraphCall, sink: AssertSink) -> None:
        """Raise LifetimeError if the layout of `call` has mismatches."""
        found = self._problems.get(-1 if call.layout is None else call.layout)
        if found is None:
            return
        try:
            known = call.found.holders if call.found is not None else []
            held = known if any(known) else self._holders(call, found)
        except Exception as error:
            held = [[] for _ in found]
            sink.failed("lifetimes", error)
        raise LifetimeError(self._message(call, found, held, sink))

    def _wrong_now(self, call: GraphCall, sink: AssertSink) -> str | None:
        found = []
        if call.watch is not None and call.life is not None:
            found = call.watch.look(call.life, len(call.rows) // 3, call.owned)
        if not found or overlapped(call.start_ns):
            return None
        call.found = FoundMismatches(found, self._holders(call, found))
        return self._message(call, found, call.found.holders, sink, len(call.rows) // 3)

    def _message(
        self,
        call: GraphCall,
        found: Sequence[StorageMismatch],
        holders: Sequence[Sequence[str]],
        sink: AssertSink,
        position: int | None = None,
    ) -> str:
        def launch(number: int) -> str:
            sites = call.rows[3 * number : 3 * number + 1]
            return f"launch {number}" + "".join(f" ({sink.describe_launch(self._graph, site)})" for site in sites)

        return f"stepscope: in graph {self._graph}, {describe_mismatches(found, holders, launch, position)}"

    def of(self, call: GraphCall, tracker: Tracker, write: Write) -> int | None:
        """Return the number of `call`'s layout, and write it if it is new; None if its storages were not followed."""
        if call.life is None:
            return None
        try:
            return self._number(call, tracker, write)
        finally:
            close(call)

    def _number(self, call: GraphCall, tracker: Tracker, write: Write) -> int:
        if tracker is not self._tracker:  # another log
            self._tracker = tracker
            self._numbers.clear()
            self._told.clear()
        assert call.life is not None
        # Incomplete calls are not compared, nor those in which a search for holders may have delayed deaths.
        is_whole = call.state not in ("raised", UNFINISHED) and not overlapped(call.start_ns)
        compares = is_whole and call.found is None and call.function < len(self._expected)
        key = (call.function, compares, call.found is not None, call.life.key())
        number = self._numbers.get(key)
        if number is None:
            if len(self._numbers) >= MOST_LAYOUTS:
                self._numbers.clear()
                self._problems.clear()
            number = self._numbers[key] = next(_layout_numbers)
            layout = LayoutBuilder(number, self._graph, call.function, self._points).add(call.life.events)
            write(layout)
            self._see_sharing(call.function, call.life.events)
            if compares:
                self._compare(call, layout)
            if call.found is not None:
                write(to_record(layout, call.number, call.found.mismatches, call.found.holders))
        return number

    def _see_sharing(self, function: int, events: Iterable[Event]) -> None:
        begun = ((self._points[event[0]], event[2:]) for event in events if event[0] >= 0)
        inputs = (zip(point.names, entries, strict=True) for point, entries in begun if point.kind == "input")
        shared = frozenset(name for pairs in inputs for name, entry in pairs if entry is None)
        seen = self._sharings.setdefault(function, set())
        if seen and shared not in seen and len(seen) < MOST_SHARINGS:
            self.sharings_after_first += 1
        seen.add(shared)

    def _compare(self, call: GraphCall, layout: LifetimeLayout) -> None:
        found = compare(layout, self._expected[call.function], call.owned)
        if not found:
            return
        self._problems[layout.layout] = found
        told = frozenset((entry.kind, entry.buffer) for entry in found)
        is_told = told in self._told or len(self._told) >= MOST_TOLD
        self._told.add(told)
        call.found = FoundMismatches(found, [[] for _ in found] if is_told else self._holders(call, found))

    def _holders(self, call: GraphCall, found: Sequence[StorageMismatch]) -> list[list[str]]:
        """Return the holders of the storages that should be dead, with an entry for each of `found`."""
        if call.tracker is None:
            return [[] for _ in found]
        late = {entry.storage: entry for entry in found if entry.actual is None and entry.storage is not None}
        storages = call.tracker.alive(late.keys(), call)
        storages |= {n: alive for n, entry in late.items() if (alive := _owned(call, entry.buffer)) is not None}
        held = dict(zip(storages, find_holders(list(storages.values())), strict=True))
        return [held.get(-1 if entry.storage is None else entry.storage, []) for entry in found]


def _owned(call: GraphCall, name: str) -> Any:
    """Return the storage of an input that only the call referred to when it began; None if it is dead or another."""
    reference = call.owned.get(name)
    return reference() if reference is not None else None
