"""Converts births and deaths of storages to live bytes over time, with levels of detail."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.viewer.ingest.columns import Ints
from stepscope.viewer.ingest.recorder.live_levels import PER_LEVEL
from stepscope.viewer.ingest.rows import IndexRows

KINDS = ("input", "saved", "kept", "temporary")
"""Storages that no compiled call allocated; those allocated by one that a backward call used; others that outlived the
call that allocated them; and those that did not."""
Columns = dict[str, Ints]


@dataclass(frozen=True)
class Storages:
    """Births and deaths of the storages of one device."""

    born_ns: Ints
    size: Ints
    kind: Ints
    """Index into `KINDS`."""
    died_ns: Ints
    """Times of the deaths in `died`."""
    died: Ints
    """Storages that died."""


def add_curve(rows: IndexRows, log: int, device: str, storages: Storages) -> None:
    """Add the curve of a device: a row for each time of a birth or death, and the coarser levels."""
    if not len(storages.born_ns):
        return
    curve = _moments(storages)
    _add(rows, "live_bytes", log, device, curve)
    at = int(curve["live_bytes"].argmax())
    peak = {name: int(curve[name][at]) for name in ("ns", "live_bytes", "made_bytes")}
    rows.add("live_peaks", log=log, device=device, first_ns=int(curve["ns"][0]), last_ns=int(curve["ns"][-1]), **peak)
    low, high = curve["live_bytes"], curve["live_bytes"]
    parts = {name: column for name, column in curve.items() if name not in ("ns", "live_bytes")}
    ns, level = curve["ns"], 1
    while len(ns) > PER_LEVEL:
        starts = np.arange(0, len(ns), PER_LEVEL)
        peaks = _peaks(high)
        ns, low, high = ns[starts], np.minimum.reduceat(low, starts), high[peaks]
        parts = {name: column[peaks] for name, column in parts.items()}
        columns = {"level": np.full(len(ns), level), "ns": ns, "low_bytes": low, "high_bytes": high, **parts}
        _add(rows, "live_levels", log, device, columns)
        level += 1


def _peaks(values: Ints) -> Ints:
    """Return the index of the first greatest value of each `PER_LEVEL` values."""
    blocks = -(-len(values) // PER_LEVEL)
    padded = np.full(blocks * PER_LEVEL, values.min() - 1)
    padded[: len(values)] = values
    inside: Ints = padded.reshape(blocks, PER_LEVEL).argmax(axis=1)
    return inside + PER_LEVEL * np.arange(blocks)


def _moments(storages: Storages) -> Columns:
    """Return the times in order, and the live bytes of all kinds and of some after all events of each time."""
    ns = np.concatenate([storages.born_ns, storages.died_ns])
    change = np.concatenate([storages.size, -storages.size[storages.died]])
    kind = np.concatenate([storages.kind, storages.kind[storages.died]])
    order = np.argsort(ns, kind="stable")
    ns, change, kind = ns[order], change[order], kind[order]
    last = np.flatnonzero(np.append(ns[1:] != ns[:-1], True))
    of_kind = {name: np.cumsum(change * (kind == index))[last] for index, name in enumerate(KINDS)}
    live = np.cumsum(change)[last]
    made = {"made_bytes": live - of_kind["input"], "saved_bytes": of_kind["saved"], "kept_bytes": of_kind["kept"]}
    return {"ns": ns[last], "live_bytes": live, **made}


def _add(rows: IndexRows, table: str, log: int, device: str, columns: Columns) -> None:
    count = len(columns["ns"])
    name = np.full(count, device, dtype=object)
    rows.add_columns(table, {"log": np.full(count, log), "device": name, **columns})
