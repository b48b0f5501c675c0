"""The storages of one graph call, and the events in which they appear and die."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol
from weakref import ref

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
