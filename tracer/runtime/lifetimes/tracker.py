"""Storages: which ones a call meets, when they die, and what a call looked like as a whole.

A storage is known by a weak reference to torch's Python object for it, which lives as long as the memory does
(c10/core/impl/PyObjectSlot.h); the reference's callback is the death. Calls that run alike give equal lists of
events, so what they looked like is worked out and written once, and a call costs its list.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import getweakrefs, ref

from stepscope.tracer.schema.records import AllocatorCurve, Lifetimes, StorageKind

if TYPE_CHECKING:
    from stepscope.tracer.runtime.launches import Call, GraphHooks

STALE = 4096
RECENT_STEPS = 2
"""What a call of so many steps ago made is told relative to this call: a state that goes from step to step looks alike
in each of them."""
SPARSE = 16
"""Of so many steps one is followed, where each storage costs what Python code costs."""

Entry = int | tuple[int | None, int | None, int, int] | None
"""A tensor that was met: the bytes of a storage that no call has met before; (calls back, call of an earlier step,
number there, bytes) of one that was; None: no storage, or one that this call has met already."""
Event = tuple[Any, ...]
"""(place, rows, entry, ...) of a meeting; (-1 - number, rows) of the death of a storage. `rows` is the length of the
call's list of launches. An entry has (device, bytes) for a new input, (name, device, entry) for what was returned."""


@dataclass(frozen=True)
class Place:
    """A place of a wrapper where storages are met."""

    kind: StorageKind
    names: tuple[str, ...]
    devices: tuple[str, ...] = ()
    """Of an allocation."""
    site: int | None = None
    """The launch site that returned them."""


@dataclass(frozen=True)
class Storage:
    """A storage that is alive, and which one it was to the call that met it first."""

    owner: Life
    index: int
    reference: ref[Any]
    """To torch's object for it."""
    is_given: bool
    """It came in from outside of compiled code."""


class Life:
    """The storages of one call."""

    __slots__ = (
        "asks_allocator",
        "asks_owner",
        "call",
        "child",
        "count",
        "device",
        "events",
        "known",
        "place",
        "rows",
        "step",
    )

    def __init__(self, call: Call, place: tuple[object, ...] | None = None) -> None:
        self.call, self.step = call.number, call.step
        self.place = place
        """The same for calls that repeat from step to step, compiled anew or not; None: the call is captured, its
        storages are the CUDA graph's."""
        self.rows: list[int] | None = call.rows
        """None: the call has ended."""
        self.child: Life | None = None
        """Of the call that runs inside this one."""
        self.device: str | None = None
        """Whose allocator is asked; None: that of the current one."""
        self.asks_allocator = False
        """At every meeting, not at the begin and the end only."""
        self.asks_owner = False
        """Of inputs, whether somebody else holds them."""
        self.count = 0
        self.events: list[Event] = []
        self.known: dict[int, tuple[int, ref[Any]]] = {}
        """Storages that other calls met first, by the `id` of the reference: which storage of this call it is."""

    def key(self) -> object:
        """Equal for calls that ran alike."""
        return tuple(self.events)

    def since(self, start: int) -> tuple[list[Event], int]:
        """What has come after `start`, and what to ask with the next time; 0: all."""
        events = self.events[start:]
        return events, start + len(events)

    def end(self) -> None:
        """Its storages may live on, and this with them."""
        self.rows = self.child = None
        self.events, self.known = [], {}


class Tracker:
    """The storages that compiled calls of this process have met and that are alive."""

    usual = SPARSE
    """`every`, where nothing else is asked for."""

    def __init__(self, running: Callable[[], Call | None], clock: Callable[[], int], every: int | None = None) -> None:
        """After the first calls of a graph, those of steps that `every` divides are followed."""
        self.is_on = True
        """Calls that begin now are followed. The deaths of what others have met are told in any case."""
        self._running, self._clock = running, clock
        self.follow_every(every)
        self.life: type[Life] = Life
        self._live: dict[int, tuple[Life, int, ref[Any], bool]] = {}
        """The fields of a `Storage`, by the `id` of its reference."""
        self._by_address: dict[int, ref[Any]] = {}
        self._outside: list[tuple[int, int, int]] = []
        self._allocator: list[tuple[int, int, int, int]] = []
        self._callback = self._on_death

    def follow_every(self, steps: int | None) -> None:
        self.every = steps or self.usual

    def meeter(self, hooks: GraphHooks, places: Sequence[Place]) -> Callable[[Call, int, Sequence[Any]], None]:
        """What generated code calls at the `places` of a graph."""
        return hooks.meet

    def batch(self, calls: Sequence[Call]) -> Lifetimes | None:
        """What `calls` followed, and what has died outside of calls since the last time; None: nothing."""
        followed = [(call.number, call.layout) for call in calls if call.layout is not None]
        allocator = _taken(self._allocator)
        dead_call, dead_index, dead_ns = self._died_outside()
        if not followed and not dead_call and not allocator:
            return None
        return Lifetimes(
            call=[number for number, _ in followed],
            layout=[layout for _, layout in followed],
            dead_call=dead_call,
            dead_index=dead_index,
            dead_ns=dead_ns,
            allocator=AllocatorCurve(*([entry[n] for entry in allocator] for n in range(4))),
        )

    def _died_outside(self) -> tuple[list[int], list[int], list[int]]:
        """Calls, numbers there and moments of what has died outside of calls since the last time."""
        outside = _taken(self._outside)
        return [call for call, _, _ in outside], [index for _, index, _ in outside], [ns for _, _, ns in outside]

    def ask_allocator(self, call: Call, device: str | None) -> None:
        """Bytes that the allocator of a CUDA device (None: the current one) says it has given out and holds, now."""
        import torch

        stats = torch.cuda.memory_stats_as_nested_dict(device)
        allocated, reserved = (stats[name]["all"]["current"] for name in ("allocated_bytes", "reserved_bytes"))
        self._allocator.append((call.number, (len(call.rows) + 2) // 3, allocated, reserved))

    def storages(self) -> list[Storage]:
        """All that are alive."""
        return [Storage(*fields) for fields in list(self._live.values())]

    def alive(self, wanted: Collection[int], call: Call) -> dict[int, Any]:
        """torch's objects for those of the storages that `call` met first that are alive, by their number there."""
        mine = [one for one in self.storages() if one.owner is call.life and one.index in wanted]
        return {one.index: storage for one in mine if (storage := one.reference()) is not None}

    def meet(self, call: Call, number: int, place: Place, values: Sequence[Any]) -> None:
        """`call` meets the tensors `values` at the place `number` of its graph."""
        life = call.life
        if life is None:
            return
        if place.kind == "allocated":
            entries: list[Any] = [self._add(life, value.untyped_storage()) for value in values]
        elif place.kind == "input":
            entries = [self._input(life, value) for value in values]
        else:
            entries = [
                entry
                for name, value in zip(place.names, values, strict=True)
                for entry in self._returned(life, name, value)
            ]
        life.events.append((number, len(call.rows), *entries))
        if life.asks_allocator:
            self.ask_allocator(call, life.device)

    def _add(self, life: Life, storage: Any, is_given: bool = False) -> Any:
        found = ref(storage, self._callback)
        self._live[id(found)] = (life, life.count, found, is_given)
        life.count += 1
        return storage.nbytes()

    def _find(self, storage: Any) -> ref[Any] | None:
        return next((found for found in getweakrefs(storage) if id(found) in self._live), None)

    def _input(self, life: Life, value: Any) -> Any:
        try:
            address = value.data_ptr()
        except (AttributeError, RuntimeError):  # a number; a tensor without memory
            return None
        found = self._by_address.get(address)
        if found is None or (storage := found()) is None or storage.data_ptr() != address:
            storage = value.untyped_storage()
            if not address and storage.nbytes():  # a wrapper around other tensors, a fake one
                return None
            found = self._find(storage)
            if found is None:
                return (str(storage.device), self._add(life, storage, is_given=True))
            if address and storage.data_ptr() == address:
                self._remember(address, found)
        return self._known(life, found, storage)

    def _remember(self, address: int, found: ref[Any]) -> None:
        """Where a storage lies; one that is gone or has moved is told by looking at it again."""
        if len(self._by_address) > STALE + 2 * len(self._live):
            self._by_address.clear()
        self._by_address[address] = found

    def _known(self, life: Life, found: ref[Any], storage: Any) -> Entry:
        owner, index, _, is_given = self._live[id(found)]
        if owner is life or id(found) in life.known:
            return None
        life.known[id(found)] = life.count, found
        life.count += 1
        if owner.step == life.step or (not is_given and life.step - owner.step <= RECENT_STEPS):
            return (life.call - owner.call, None, index, storage.nbytes())
        return (None, owner.call, index, storage.nbytes())

    def _returned(self, life: Life, name: str, value: Any) -> Iterator[tuple[str, str, Entry]]:
        if isinstance(value, (list, tuple)):
            for number, member in enumerate(value):
                yield from self._returned(life, f"{name}[{number}]", member)
            return
        try:
            storage = value.untyped_storage()
            if storage.nbytes() and not value.data_ptr() and value.numel():
                return
        except (AttributeError, RuntimeError, NotImplementedError):
            return
        found = self._find(storage)
        entry = self._add(life, storage) if found is None else self._known(life, found, storage)
        if entry is not None:
            yield name, str(storage.device), entry

    def _on_death(self, found: ref[Any]) -> None:
        """Called by Python at the moment of the death, on whatever thread, in whatever code; raises nothing."""
        try:
            life, index, _, _ = self._live.pop(id(found))
            if life.rows is not None and life.child is None:
                life.events.append((-1 - index, len(life.rows)))
            else:
                self._death_elsewhere(life, index, id(found))
        except Exception:  # the interpreter may be shutting down
            return

    def _death_elsewhere(self, owner: Life, index: int, key: int) -> None:
        """Of what another call than the innermost one made, which calls around it may know too."""
        call = self._running()
        is_seen = False
        while call is not None:
            life = call.life
            if life is not None:
                known = index if owner is life else life.known.pop(key, (None,))[0]
                if known is not None:
                    life.events.append((-1 - known, len(call.rows)))
                    is_seen = True
            call = call.parent
        if not is_seen and owner.rows is not None:  # it runs on another thread
            owner.events.append((-1 - index, len(owner.rows)))
        elif not is_seen:
            self._outside.append((owner.call, index, self._clock()))


def close(call: Call) -> None:
    """Nothing more is followed in `call`; deaths are its parent's again."""
    if call.life is not None:
        call.life.end()
    if call.parent is not None and call.parent.life is not None:
        call.parent.life.child = None


def _taken(entries: list[Any]) -> list[Any]:
    """What is in a list, taken out of it; other threads may be adding to it."""
    taken = entries[:]
    del entries[: len(taken)]
    return taken
