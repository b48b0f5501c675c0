"""Queries the waits for batches of a DataLoader."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace


class DataWaitRow(NamedTuple):
    """The waits of one place of the program for one kind of loader."""

    workers: int | None
    file: str | None
    line: int | None


def longest_waits(trace: Trace, log: int) -> DataWaitRow:
    """Return the place at which the program waited longest in all; raises IndexError if it never waited."""
    return sql.records(
        DataWaitRow,
        trace,
        "SELECT workers, file, line FROM data_waits WHERE log = ? GROUP BY ALL ORDER BY sum(duration_ns) DESC LIMIT 1",
        [log],
    )[0]
