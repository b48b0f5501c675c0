"""Converts births and deaths of storages to live bytes over time, with levels of detail."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.viewer.ingest.columns import Flags, Ints
from stepscope.viewer.ingest.recorder.live_levels import PER_LEVEL
from stepscope.viewer.ingest.rows import IndexRows


@dataclass(frozen=True)
class Storages:
    """Births and deaths of the storages of one device."""

    born_ns: Ints
    size: Ints
    made: Flags
    """Whether a compiled call allocated it."""
    died_ns: Ints
    """Times of the deaths in `died`."""
    died: Ints
    """Storages that died."""


def add_curve(rows: IndexRows, log: int, device: str, storages: Storages) -> None:
    """Add the curve of a device: a row for each time of a birth or death, and the coarser levels."""
    if not len(storages.born_ns):
        return
    ns, live, made = _moments(storages)
    _add(rows, "live_bytes", log, device, {"ns": ns, "live_bytes": live, "made_bytes": made})
    at = int(live.argmax())
    rows.add(
        "live_peaks",
        log=log,
        device=device,
        first_ns=int(ns[0]),
        last_ns=int(ns[-1]),
        ns=int(ns[at]),
        live_bytes=int(live[at]),
        made_bytes=int(made[at]),
    )
    low, level = live, 1
    while len(ns) > PER_LEVEL:
        starts = np.arange(0, len(ns), PER_LEVEL)
        ns, low = ns[starts], np.minimum.reduceat(low, starts)
        live, made = (np.maximum.reduceat(column, starts) for column in (live, made))
        columns = {"level": np.full(len(ns), level), "ns": ns, "low_bytes": low, "high_bytes": live}
        _add(rows, "live_levels", log, device, {**columns, "made_bytes": made})
        level += 1


def _moments(storages: Storages) -> tuple[Ints, Ints, Ints]:
    """Return the times in order, and the live and the allocated bytes after all events of each time."""
    ns = np.concatenate([storages.born_ns, storages.died_ns])
    change = np.concatenate([storages.size, -storages.size[storages.died]])
    made = np.concatenate([storages.made, storages.made[storages.died]])
    order = np.argsort(ns, kind="stable")
    ns, change, made = ns[order], change[order], made[order]
    last = np.flatnonzero(np.append(ns[1:] != ns[:-1], True))
    return ns[last], np.cumsum(change)[last], np.cumsum(change * made)[last]


def _add(rows: IndexRows, table: str, log: int, device: str, columns: dict[str, Ints]) -> None:
    count = len(columns["ns"])
    name = np.full(count, device, dtype=object)
    rows.add_columns(table, {"log": np.full(count, log), "device": name, **columns})
