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
"""What happened to storages in a call.

(point, rows, entry, ...) is a storage point that was reached; (-1 - number, rows) is the death of a storage. `rows` is
the length of the call's list of launches. A new input has (device, bytes) as its entry, and a result of a launch
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
        """The call inside which this one runs."""


@dataclass(frozen=True)
class LiveStorage:
    """A storage that is alive, and its number in the call that saw it first."""

    owner: Life
    index: int
    reference: ref[Any]
    """A weak reference to torch's Python object for the storage."""
    is_given: bool
    """The storage came in from outside of compiled code."""


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
        """The same for calls that repeat from step to step, whether or not they are compiled anew; None for a call
        that is captured, whose storages belong to the CUDA graph."""
        self.rows: list[int] | None = call.rows
        """The launches of the call; None once the call has ended."""
        self.child: Life | None = None
        """The storages of the call that runs inside this one."""
        self.device: str | None = None
        """The device whose allocator is asked; None for the current one."""
        self.asks_allocator = False
        """Whether the allocator is asked at every storage point, and not only at the begin and the end."""
        self.asks_owner = False
        """Whether the call has to find out which of its inputs somebody else holds."""
        self.count = 0
        self.events: list[Event] = []
        self.known: dict[int, tuple[int, ref[Any]]] = {}
        """The storages that other calls saw first: the `id` of each reference, and its number in this call."""

    def key(self) -> object:
        """Return a value that is equal for calls that ran alike."""
        return tuple(self.events)

    def since(self, start: int) -> tuple[list[Event], int]:
        """Return the events from number `start` on (0: all of them), and the number to ask with the next time."""
        events = self.events[start:]
        return events, start + len(events)

    def end(self) -> None:
        """Let go of the call, although its storages, and this object with them, may live on."""
        self.rows = self.child = None
        self.events, self.known = [], {}


def close(call: FollowedCall) -> None:
    """Stop following `call`, so that its parent learns of deaths again."""
    if call.life is not None:
        call.life.end()
    if call.parent is not None and call.parent.life is not None:
        call.parent.life.child = None
