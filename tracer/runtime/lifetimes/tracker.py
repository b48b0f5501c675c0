"""Follows storages: which ones a call uses, and when they die.

A storage is followed by a weak reference to torch's Python object for it, which lives as long as the memory
(c10/core/impl/PyObjectSlot.h); the callback of the reference reports the death. Calls with equal lifetimes have equal
lists of events, so their layout is computed and written once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import getweakrefs, ref

from stepscope.tracer.schema.memory import AllocatorCurve, Lifetimes
from stepscope.tracer.wrapper.parsed import PointStorages

STALE = 4096
RECENT_STEPS = 2
"""Maximum age, in steps, of storages that are identified relative to the present call, so that state which is passed
from step to step gives equal events in each step."""
SPARSE = 16
"""Interval of the steps that the tracker in Python follows, since it is slower than the compiled one."""

Entry = int | tuple[int | None, int | None, int, int] | None
"""One tensor at a storage point.

An integer is the size in bytes of a storage that no call has seen before. A tuple (calls back, call of an earlier
step, number there, bytes) names a storage that an earlier call has seen. None stands for a tensor without a storage,
or for a storage that this call has seen already.
"""
Event = tuple[Any, ...]
"""A change of storages in a call.

(point, rows, entry, ...) is a storage point that was reached; (-1 - number, rows) is the death of a storage. `rows` is
the length of the call's list of launches. The entry of a new input is (device, bytes), that of a launch's result
(name, device, entry).
"""


class FollowedCall(Protocol):
    """The part of a graph call that the tracker of storages uses."""

    number: int
    step: int
    rows: list[int]
    life: Life | None
    layout: int | None

    @property
    def parent(self) -> FollowedCall | None:
        """The call that this one is nested in, or None."""


@dataclass(frozen=True)
class LiveStorage:
    """A storage that is alive, and its number in the call that saw it first."""

    owner: Life
    index: int
    reference: ref[Any]
    """Weak reference to torch's Python object for the storage."""
    is_given: bool
    """Whether the storage was allocated outside of compiled code."""


class Life:
    """The storages of one call."""

    __slots__ = (
        "asks_allocator", "asks_owner", "call", "child", "count", "device", "events", "known", "place", "rows", "step",
    )  # fmt: skip

    def __init__(self, call: FollowedCall, place: tuple[object, ...] | None = None) -> None:
        self.call, self.step = call.number, call.step
        self.place = place
        """Identity that is equal for calls that repeat from step to step, recompiled or not; None for a captured call,
        whose storages belong to the CUDA graph."""
        self.rows: list[int] | None = call.rows
        """Launches of the call; None once the call has ended."""
        self.child: Life | None = None
        """Storages of the call that is nested in this one."""
        self.device: str | None = None
        """Device whose allocator is queried; None for the current one."""
        self.asks_allocator = False
        """Whether the allocator is queried at every storage point, and not only at the begin and the end."""
        self.asks_owner = False
        """Whether the call must find out which of its inputs have other owners."""
        self.count = 0
        self.events: list[Event] = []
        self.known: dict[int, tuple[int, ref[Any]]] = {}
        """Storages that other calls saw first: by `id` of the reference, the number in this call and the reference."""

    def key(self) -> object:
        """Return a value that is equal for calls with equal lifetimes."""
        return tuple(self.events)

    def since(self, start: int) -> tuple[list[Event], int]:
        """Return the events from index `start`, and the index to pass the next time."""
        events = self.events[start:]
        return events, start + len(events)

    def end(self) -> None:
        """Drop the references to the call; its storages, and this object with them, may live longer."""
        self.rows = self.child = None
        self.events, self.known = [], {}


def close(call: FollowedCall) -> None:
    """Stop following `call`, so that deaths are recorded in its parent again."""
    if call.life is not None:
        call.life.end()
    if call.parent is not None and call.parent.life is not None:
        call.parent.life.child = None


class StorageHooks(Protocol):
    """The part of a graph's hooks that a tracker calls."""

    def see_storages(self, call: Any, point: int, values: Sequence[Any], /) -> None: ...


class Tracker:
    """The live storages that compiled calls of this process have used."""

    usual = SPARSE
    """Default of `every`."""

    def __init__(
        self, running: Callable[[], FollowedCall | None], clock: Callable[[], int], every: int | None = None
    ) -> None:
        """Create a tracker; after its first calls, a graph is followed in the steps that `every` divides."""
        self.is_on = True
        """Whether calls that begin now are followed. Deaths of storages of earlier calls are recorded anyway."""
        self._running, self._clock = running, clock
        self.follow_every(every)
        self.life: type[Life] = Life
        self._live: dict[int, tuple[Life, int, ref[Any], bool]] = {}
        """Fields of a `LiveStorage`, by the `id` of its reference."""
        self._by_address: dict[int, ref[Any]] = {}
        self._outside: list[tuple[int, int, int]] = []
        self._allocator: list[tuple[int, int, int, int]] = []
        self._callback = self._on_death

    def follow_every(self, steps: int | None) -> None:
        self.every = steps or self.usual

    def observer(
        self, hooks: StorageHooks, points: Sequence[PointStorages]
    ) -> Callable[[FollowedCall, int, Sequence[Any]], None]:
        """Return the function that generated code calls at the storage points of a graph."""
        return hooks.see_storages

    def batch(self, calls: Sequence[FollowedCall]) -> Lifetimes | None:
        """Return the layouts of `calls` and the new deaths outside of calls, or None if there are none."""
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
        """Return the call, the number there and the time of each death outside of calls since the last time."""
        outside = _taken(self._outside)
        return [call for call, _, _ in outside], [index for _, index, _ in outside], [ns for _, _, ns in outside]

    def ask_allocator(self, call: FollowedCall, device: str | None) -> None:
        """Record the bytes that the allocator of a CUDA device has allocated and reserved; None is the current one."""
        import torch

        stats = torch.cuda.memory_stats_as_nested_dict(device)
        allocated, reserved = (stats[name]["all"]["current"] for name in ("allocated_bytes", "reserved_bytes"))
        self._allocator.append((call.number, (len(call.rows) + 2) // 3, allocated, reserved))

    def storages(self) -> list[LiveStorage]:
        return [LiveStorage(*fields) for fields in list(self._live.values())]

    def alive(self, wanted: Collection[int], call: FollowedCall) -> dict[int, Any]:
        """Return torch's objects for the live storages that `call` was the first to use, by number."""
        mine = [one for one in self.storages() if one.owner is call.life and one.index in wanted]
        return {one.index: storage for one in mine if (storage := one.reference()) is not None}

    def see(self, call: FollowedCall, number: int, point: PointStorages, values: Sequence[Any]) -> None:
        """Record the storages of the tensors `values` at the storage point `number` of the graph of `call`."""
        life = call.life
        if life is None:
            return
        if point.kind == "allocated":
            entries: list[Any] = [self._add(life, value.untyped_storage()) for value in values]
        elif point.kind == "input":
            entries = [self._input(life, value) for value in values]
        else:
            entries = [
                entry
                for name, value in zip(point.names, values, strict=True)
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
            if not address and storage.nbytes():  # a wrapper around other tensors, or a fake tensor
                return None
            found = self._find(storage)
            if found is None:
                return (str(storage.device), self._add(life, storage, is_given=True))
            if address and storage.data_ptr() == address:
                self._remember(address, found)
        return self._known(life, found, storage)

    def _remember(self, address: int, found: ref[Any]) -> None:
        """Remember the address of a storage; users must check whether the storage is gone or has moved."""
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
        """Record a death. Python calls this at once, in any thread and in any code; it raises nothing."""
        try:
            life, index, _, _ = self._live.pop(id(found))
            if life.rows is not None and life.child is None:
                life.events.append((-1 - index, len(life.rows)))
            else:
                self._death_elsewhere(life, index, id(found))
        except Exception:  # the interpreter may be shutting down
            return

    def _death_elsewhere(self, owner: Life, index: int, key: int) -> None:
        """Record the death of a storage that is not the innermost call's in each running call that knows it."""
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
        if not is_seen and owner.rows is not None:  # it runs in another thread
            owner.events.append((-1 - index, len(owner.rows)))
        elif not is_seen:
            self._outside.append((owner.call, index, self._clock()))


def _taken(entries: list[Any]) -> list[Any]:
    """Remove and return the entries of a list to which other threads may be adding."""
    taken = entries[:]
    del entries[: len(taken)]
    return taken
