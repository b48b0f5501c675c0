"""Computes the memory that calls inside another call, such as subgraphs and partitions, allocate at its launches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepscope.viewer.ingest.columns import Ints
from stepscope.viewer.ingest.recorder.launch_places import LaunchPlaces

NEVER = np.iinfo(np.int64).max
_MOST_DEPTH = 64


class Made(NamedTuple):
    """Storages that calls allocated. A call is a position among the measured calls."""

    call: Ints
    size: Ints
    born_ns: Ints
    died_ns: Ints
    """`NEVER` if the storage was not seen to die."""


class Known(NamedTuple):
    """Storages that inner calls allocated and that their outer call counts as returned to it."""

    call: Ints
    size: Ints
    born: Ints
    """Position in the outer call."""
    dead: Ints
    """Position in the outer call; `NEVER` if it does not die there."""


class InnerBytes(NamedTuple):
    """Maximum live bytes that inner calls had allocated, for launches that inner calls follow."""

    call: Ints
    position: Ints
    storage_bytes: Ints
    """Bytes in addition to those that the outer call counts as returned to it there."""
    ns: Ints
    """Time of the maximum."""

    def of(self, call: int) -> tuple[Ints, Ints]:
        """Return the positions in a call, and the bytes at each."""
        part = slice(*np.searchsorted(self.call, [call, call + 1]))
        return self.position[part], self.storage_bytes[part]


def inner_bytes(at: Ints, places: LaunchPlaces, made: Made, known: Known) -> InnerBytes:
    """Return the bytes in the order of calls and positions. `at` has the position in the log of each measured call."""
    outer, storage = _around(_parents(at, places), made.call)
    begin, end = places.call_start_ns[at[outer]], places.call_end_ns[at[outer]]
    born, died = made.born_ns[storage], made.died_ns[storage]
    within = (died > begin) & (born < end)
    outer, size, born, died = (column[within] for column in (outer, made.size[storage], born, died))
    mark_call, mark_ns = _launches(np.unique(outer), at, places)
    nothing = np.zeros(len(mark_call), dtype=np.int64)
    call = np.concatenate([outer, outer, mark_call])
    ns = np.concatenate([born, died, mark_ns])
    change = np.concatenate([size, -size, nothing])
    is_mark = np.arange(len(call)) >= 2 * len(outer)
    order = np.lexsort((change, is_mark, ns, call))  # deaths come first at equal times: their memory is reused
    call, ns, change, is_mark = call[order], ns[order], change[order], is_mark[order]
    place = call, np.maximum(_since(call, is_mark.astype(np.int64)) - 1, 0)
    return _highest(*place, _since(call, change), ns, known)


def _parents(at: Ints, places: LaunchPlaces) -> Ints:
    """Return the nearest measured call around each measured call, or -1."""
    followed = np.full(len(places.call_id), -1, dtype=np.int64)
    followed[at] = np.arange(len(at))
    above = places.parent[at]
    for _ in range(_MOST_DEPTH):
        above = np.where((above >= 0) & (followed[above] < 0), places.parent[above], above)
    found = np.where(above >= 0, followed[above], -1)
    return np.where(found < np.arange(len(at)), found, -1)  # inner calls begin after their outer call


def _around(parent: Ints, call: Ints) -> tuple[Ints, Ints]:
    """Return (call, storage) for every call around the one that allocated the storage."""
    storage, above = np.arange(len(call)), parent[call]
    outers, storages = [above[:0]], [storage[:0]]
    for _ in range(_MOST_DEPTH):
        inside = above >= 0
        storage, above = storage[inside], above[inside]
        outers.append(above)
        storages.append(storage)
        above = parent[above]
    return np.concatenate(outers), np.concatenate(storages)


def _launches(calls: Ints, at: Ints, places: LaunchPlaces) -> tuple[Ints, Ints]:
    """Return the call and start of all launches of `calls`."""
    count = places.count[at[calls]]
    call = np.repeat(calls, count)
    launch = np.repeat(places.first[at[calls]] - (np.cumsum(count) - count), count) + np.arange(len(call))
    return call, places.launch_start_ns[launch]


def _since(call: Ints, change: Ints) -> Ints:
    """Return the cumulative sums of `change`, starting anew with each call."""
    total = np.cumsum(change)
    first = np.flatnonzero(np.diff(call, prepend=-1))
    return total - np.repeat((total - change)[first], np.diff(np.append(first, len(call))))


def _highest(call: Ints, position: Ints, live: Ints, ns: Ints, known: Known) -> InnerBytes:
    """Return the maximum at each position."""
    order = np.lexsort((-live, position, call))
    call, position, live, ns = call[order], position[order], live[order], ns[order]
    first = np.flatnonzero((np.diff(call, prepend=-1) != 0) | (np.diff(position, prepend=-1) != 0))
    call, position, live, ns = call[first], position[first], live[first], ns[first]
    more = live - _counted(call, position, known)
    use = more > 0
    return InnerBytes(call[use], position[use], more[use], ns[use])


def _counted(call: Ints, position: Ints, known: Known) -> Ints:
    """Return the bytes allocated by inner calls that the outer calls count themselves at these positions."""
    width = max(int(position.max(initial=0)), int(known.born.max(initial=0))) + 2
    dead = np.minimum(known.dead, width - 1)

    def up_to(of: Ints) -> Ints:
        key = known.call * width + of
        order = np.argsort(key, kind="stable")
        total: Ints = np.append(0, np.cumsum(known.size[order]))
        ends = np.searchsorted(key[order], [call * width - 1, call * width + position], side="right")
        found: Ints = total[ends[1]] - total[ends[0]]
        return found

    return up_to(known.born) - up_to(np.maximum(dead, known.born))
