"""Finds the storages that steps have left alive, when a recording ends and in a few steps before."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterable

from stepscope.tracer.runtime.lifetimes.holders import MOST_STORAGES, Held, find_held
from stepscope.tracer.runtime.lifetimes.tracker import LiveStorage, Tracker
from stepscope.tracer.schema.memory import Growth

LEAST_STEPS = 3
MOST_ROWS = 10_000
SECONDS, SECONDS_OF_STEP = 6.0, 1.0
"""Longest search for holders at the end, which happens once and may have to share the machine with other processes, and
in a step."""
LEAST_SO_FAR, LEAST_BYTES = 6, 1 << 20
"""Least number of steps that have left storages of one place, and of their bytes, for a search in a step."""
LAST_FEW = 2
"""Number of latest storages of each place whose holders are searched."""


def growth_of(tracker: Tracker | None, last_step: int) -> list[Growth]:
    """Return the record of growth at the end of a recording; empty if no storages were followed.

    Call it after the last lifetimes are written: storages that its garbage collection frees did not die in the program.
    """
    return [] if tracker is None else [find_growth(tracker.storages(), last_step)]


def find_growth(live: Iterable[LiveStorage], last_step: int) -> Growth:
    """Return the storages in `live` that were allocated at the same place in at least three steps before `last_step`.

    Recompiles of a frame (a guard may depend on the list that keeps its results) count as one place. If any are found,
    this searches the holders of the last ones of each place, and runs one full garbage collection to see which
    storages it frees, unless the program has frozen its objects (`gc.freeze`) to avoid collections. Storages that were
    allocated during a capture, which belong to the CUDA graph's memory pool, and storages from outside are left out.
    """
    groups = _groups(live, last_step)
    found = sorted((one for group in groups for one in group), key=lambda one: -one.owner.step)[:MOST_ROWS]
    found.reverse()
    if not found:
        return Growth([], [], [], [], [])
    looked_at = [one for group in groups for one in group[-LAST_FEW:]][:MOST_STORAGES]
    held = _holders(looked_at, SECONDS)
    is_collected = not gc.get_freeze_count()
    if is_collected:
        gc.collect()
    return Growth(
        call=[one.owner.call for one in found],
        index=[one.index for one in found],
        holders=[held[id(one)].words if id(one) in held else [] for one in found],
        freed_by_collection=[one.reference() is None if is_collected else None for one in found],
        tensor_bytes=[held[id(one)].tensor_bytes or None if id(one) in held else None for one in found],
    )


def growth_so_far(tracker: Tracker, step: int) -> list[Growth]:
    """Return the record of the storages that many steps before `step` have left, and that the program holds; empty if
    there are none. What a function holds is known only before it returns."""
    groups = [group for group in _groups(tracker.storages(), step) if len(group) >= LEAST_SO_FAR]
    if sum(_bytes(one) for group in groups for one in group) < LEAST_BYTES:
        return []
    before_last = slice(-LAST_FEW - 1, -1)  # a variable of the program may still have the last one
    looked_at = [one for group in groups for one in group[before_last]][:MOST_STORAGES]
    held = _holders(looked_at, SECONDS_OF_STEP)
    found = [(one, of) for one in looked_at if (of := held.get(id(one))) is not None and of.words]
    if not found:
        return []
    return [
        Growth(
            call=[one.owner.call for one, _ in found],
            index=[one.index for one, _ in found],
            holders=[of.words for _, of in found],
            freed_by_collection=[None] * len(found),
            tensor_bytes=[of.tensor_bytes or None for _, of in found],
            at_step=step,
        )
    ]


def _groups(live: Iterable[LiveStorage], last_step: int) -> list[list[LiveStorage]]:
    """Return the storages of each place in the order of their calls; places with the most bytes come first."""
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


def _holders(looked_at: list[LiveStorage], seconds: float) -> dict[int, Held]:
    storages = [storage for one in looked_at if (storage := one.reference()) is not None]
    if len(storages) != len(looked_at):  # some died just now, in another thread
        return {}
    return {id(one): held for one, held in zip(looked_at, find_held(storages, seconds), strict=True)}
