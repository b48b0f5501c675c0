"""What steps have left behind, looked at once: when a recording ends."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterable

from stepscope.tracer.runtime.lifetimes.holders import MOST_STORAGES, find_holders
from stepscope.tracer.runtime.lifetimes.life import LiveStorage
from stepscope.tracer.runtime.lifetimes.tracker import Tracker
from stepscope.tracer.schema.records import Growth

LEAST_STEPS = 3
MOST_ROWS = 10_000
LAST_FEW = 2
"""Of each place: whose holders are looked for."""


def growth_of(tracker: Tracker | None, last_step: int) -> list[Growth]:
    """What is to be written when a recording ends, after the last of its lifetimes: what a garbage collection frees
    here has not died in the program. Empty: no storages were followed."""
    return [] if tracker is None else [find_growth(tracker.storages(), last_step)]


def find_growth(live: Iterable[LiveStorage], last_step: int) -> Growth:
    """Storages among `live` that were made at the same place of a frame in at least three steps before `last_step`;
    a frame that is compiled anew in each step (a guard looks at the list that keeps its results) is one place.

    Empty for a program whose steps leave nothing behind. Otherwise it looks for who holds the last ones of each
    place, and makes one full garbage collection to see which of them it frees: not where objects are frozen
    (`gc.freeze`), since a program that freezes its objects has asked for that not to be. What was made while a CUDA
    graph was captured lives in the memory pool of the graph and is left out, and so are storages from outside.
    """
    groups = _groups(live, last_step)
    found = sorted((one for group in groups for one in group), key=lambda one: -one.owner.step)[:MOST_ROWS]
    found.reverse()
    if not found:
        return Growth([], [], [], [])
    looked_at = [one for group in groups for one in group[-LAST_FEW:]][:MOST_STORAGES]
    held = _holders(looked_at)
    is_collected = not gc.get_freeze_count()
    if is_collected:
        gc.collect()
    return Growth(
        call=[one.owner.call for one in found],
        index=[one.index for one in found],
        holders=[held.get(id(one), []) for one in found],
        freed_by_collection=[one.reference() is None if is_collected else None for one in found],
    )


def _groups(live: Iterable[LiveStorage], last_step: int) -> list[list[LiveStorage]]:
    """Those of one place together, in the order of their calls; most bytes first."""
    groups: defaultdict[tuple[object, int], list[LiveStorage]] = defaultdict(list)
    for one in live:
        if not one.is_given and one.owner.place is not None and one.owner.step < last_step:
            groups[one.owner.place, one.index].append(one)
    kept = [group for group in groups.values() if len({one.owner.step for one in group}) >= LEAST_STEPS]
    for group in kept:
        group.sort(key=lambda one: one.owner.call)
    return sorted(kept, key=lambda group: -sum(_bytes(one) for one in group))


def _bytes(one: LiveStorage) -> int:
    storage = one.reference()
    return storage.nbytes() if storage is not None else 0


def _holders(looked_at: list[LiveStorage]) -> dict[int, list[str]]:
    storages = [storage for one in looked_at if (storage := one.reference()) is not None]
    if len(storages) != len(looked_at):  # some died just now, on another thread
        return {}
    return {id(one): words for one, words in zip(looked_at, find_holders(storages), strict=True)}
