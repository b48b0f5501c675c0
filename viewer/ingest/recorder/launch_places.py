"""Holds where the calls and launches of a log are, by which other records find the launch that they are about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from stepscope.viewer.ingest.columns import Flags, Ints
from stepscope.viewer.ingest.long_columns import MappedInts
from stepscope.viewer.ingest.recorder.launch_order import CallRange, ranges_of

_SMALL = 1 << 12


class SiteIds:
    """The ids in the index of the sites of a log, by graph and by number in the graph."""

    def __init__(self, to: Callable[[int, int], int]) -> None:
        self._to = to
        self._known: dict[tuple[int, int], int] = {}

    def of(self, graph: Ints, site: Ints) -> Ints:
        """Return the ids for graphs and sites as numbered in the log."""
        graphs, which_graph = _numbered(graph)
        names, which_site = _numbered(site)
        key = which_graph * len(names) + which_site
        if len(graphs) * len(names) <= _SMALL + len(key):  # a table is faster than sorting
            keys = np.flatnonzero(np.bincount(key))
            which = np.empty(len(graphs) * len(names), dtype=np.int64)
            which[keys] = np.arange(len(keys))
            which = which[key]
        else:
            keys, which = np.unique(key, return_inverse=True)
        ids = [self._id(int(graphs[k // len(names)]), int(names[k % len(names)])) for k in keys.tolist()]
        found: Ints = np.array(ids, dtype=np.int64)[which]
        return found

    def _id(self, graph: int, site: int) -> int:
        key = graph, site
        if key not in self._known:
            self._known[key] = self._to(graph, site)
        return self._known[key]


def _numbered(values: Ints) -> tuple[Ints, Ints]:
    """Return numbers that contain all `values`, sorted, and the place of each value among them."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if high - low < _SMALL:
        return np.arange(low, high + 1), values - low
    names, which = np.unique(values, return_inverse=True)
    return names, which


@dataclass(frozen=True)
class LaunchPlaces:
    """The calls of a log by position, and its launches in the order of their submission."""

    position: dict[int, int]
    """Number of a call in the log -> its position."""
    graph: Ints
    """Graph of each call, as numbered in the log."""
    first: Ints
    """First launch of each call."""
    count: Ints
    """Number of launches of each call."""
    call_id: Ints
    call_step: Ints
    call_start_ns: Ints
    call_end_ns: Ints
    has_ended: Flags
    """Whether each call ended. If not, its launches may have only the values that were read before them."""
    parent: Ints
    """Position of the call around each call, or -1."""
    starts: MappedInts
    ends: MappedInts
    """Start and end of each launch; what an end may be instead is said by the format."""
    sites: MappedInts
    """Site of each launch, as numbered in its graph."""
    ids: MappedInts
    site_ids: SiteIds

    @property
    def launch_start_ns(self) -> Ints:
        return self.starts.values

    @property
    def launch_id(self) -> Ints:
        return self.ids.values

    def let_go(self) -> None:
        """Release the memory of what was read of the launches."""
        for column in (self.starts, self.ends, self.sites, self.ids):
            column.let_go()

    def owner(self, launch: Ints) -> Ints:
        """Return the position of the call of each launch."""
        return np.searchsorted(self.first, launch, side="right") - 1

    def site(self, launch: Ints, owner: Ints) -> Ints:
        """Return the id of the site of each launch, given the positions of their calls."""
        return self.site_ids.of(self.graph[owner], self.sites.values[launch])

    def site_of_one(self, launch: int) -> int:
        """Return the id of the site of a launch."""
        at = np.array([launch])
        return int(self.site(at, self.owner(at))[0])

    def ranges(self) -> Iterator[CallRange]:
        """Yield all calls in ranges, and let the memory of each range go."""
        for part in ranges_of(self.first, self.count):
            yield part
            self.let_go()

    def launches(self, call: Ints, site: Ints, occurrence: Ints) -> Ints:
        """Return the launch for each call (a position), local site and occurrence, or -1."""
        calls = np.unique(call)
        calls = calls[calls >= 0]
        count = self.count[calls]
        if not count.sum():
            return np.full(len(call), -1, dtype=np.int64)
        launch = np.repeat(self.first[calls] - (np.cumsum(count) - count), count) + np.arange(int(count.sum()))
        local = self.sites.values[launch]
        names = np.unique(local)
        keys = np.repeat(np.arange(len(calls)), count) * len(names) + np.searchsorted(names, local)
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        name = np.minimum(np.searchsorted(names, site), len(names) - 1)
        fits = (call >= 0) & (site >= 0) & (names[name] == site)
        key = np.where(fits, np.searchsorted(calls, call) * len(names) + name, -1)
        at = np.searchsorted(keys, key) + occurrence
        inside = np.minimum(at, len(keys) - 1)
        return np.where((at < len(keys)) & (keys[inside] == key), launch[order[inside]], -1)


def _no_places() -> LaunchPlaces:
    none, no_flags = np.empty(0, dtype=np.int64), np.empty(0, dtype=bool)
    column = MappedInts(none)
    return LaunchPlaces(
        {}, none, none, none, none, none, none, none, no_flags, none, column, column, column, column,
        SiteIds(lambda graph, site: -1),
    )  # fmt: skip


NO_PLACES = _no_places()
