"""Notes the garbage collections of the program in which followed storages died, and what held such storages before."""

from __future__ import annotations

import gc
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from stepscope.tracer.runtime.lifetimes.holders import UNKNOWN, find_holders
from stepscope.tracer.runtime.lifetimes.tracker import LiveStorage
from stepscope.tracer.schema.memory import Collections

MOST_NOTED = 4096
MOST_SEARCHES = 2
LEAST_BYTES = 1 << 20
"""Bytes of earlier steps that must be alive for a search of their holders, which looks through the whole heap."""
_MOST_STORAGES = 16


class GarbageCollections:
    """The collections of this process since the last record, and the searches for what holds storages."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._start_ns = 0
        self._noted: deque[tuple[int, int, int]] = deque(maxlen=MOST_NOTED)
        self._searches_left = 0
        """Searches that may still be made; none before storages have died in a collection."""
        self._has_found = False

    def attach(self) -> None:
        if self._see not in gc.callbacks:
            gc.callbacks.append(self._see)

    def detach(self) -> None:
        if self._see in gc.callbacks:
            gc.callbacks.remove(self._see)

    def _see(self, phase: str, info: Mapping[str, int]) -> None:
        """Note the beginning or the end of a collection. Python calls this in any code, and it raises nothing."""
        if phase == "start":
            self._start_ns = self._clock()
        elif info.get("collected"):
            self._noted.append((self._start_ns, self._clock(), info.get("generation", -1)))

    def record(
        self, dead_ns: Iterable[int], live: Callable[[], Iterable[LiveStorage]], last_step: int
    ) -> Collections | None:
        """Return the collections in which storages died at `dead_ns`, in perf_counter_ns, or None if there are none.

        After the first such collection this searches, at most twice, the holders of storages in `live` that steps
        before `last_step` left, when there are enough of them."""
        noted = [self._noted.popleft() for _ in range(len(self._noted))]
        deaths = sorted(dead_ns) if noted else []
        found = [one for one in noted if bisect_left(deaths, one[0]) < bisect_left(deaths, one[1] + 1)]
        left = self._left_behind(live(), last_step) if self._searches_left else []
        if found and not self._has_found:
            self._has_found, self._searches_left = True, MOST_SEARCHES
        if not found and not left:
            return None
        return Collections(
            start_ns=[start for start, _, _ in found],
            end_ns=[end for _, end, _ in found],
            generation=[generation for _, _, generation in found],
            held_call=[one.owner.call for one in left],
            held_index=[one.index for one in left],
            holders=self._search(left),
        )

    def _left_behind(self, live: Iterable[LiveStorage], last_step: int) -> list[LiveStorage]:
        """Return the latest storages that earlier steps left; empty if they have few bytes."""
        made = [one for one in live if not one.is_given and one.owner.place is not None and one.owner.step < last_step]
        sizes = {id(one): storage.nbytes() for one in made if (storage := one.reference()) is not None}
        if sum(sizes.values()) < LEAST_BYTES:
            return []
        made.sort(key=lambda one: (one.owner.step, sizes.get(id(one), 0)), reverse=True)
        return made[:_MOST_STORAGES]

    def _search(self, left: Sequence[LiveStorage]) -> list[list[str]]:
        storages = [storage for one in left if (storage := one.reference()) is not None]
        if not storages or len(storages) != len(left):  # some died just now
            return [[] for _ in left]
        self._searches_left -= 1
        began_ns = self._clock()
        words = find_holders(storages)
        del storages
        for _ in range(len(self._noted)):  # the search has kept alive what a collection in the meantime has freed
            start, end, generation = self._noted.popleft()
            self._noted.append((start, self._clock() if start >= began_ns else end, generation))
        return [[] if any(one.startswith(UNKNOWN) for one in held) else held for held in words]
