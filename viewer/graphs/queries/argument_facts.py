"""Facts about the memory of arguments: memory that was never written, memory that two arguments share."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_RAN = "SELECT site, min(launch) AS first, count(*) AS launches, min(step) AS step FROM launches GROUP BY site"
# An argument whose memory the same launch writes too may read what it has just written.
_UNINITIALISED = f"""
    SELECT s.log, s.graph, s.site, a.argument, a.name, a.buffer, r.first AS launch, r.step, r.launches,
           (SELECT list(t.size) FROM tensors t WHERE t.site = a.site AND t.argument = a.argument) AS sizes
    FROM arguments a JOIN sites s ON s.site = a.site JOIN ({_RAN}) r ON r.site = s.site
    WHERE a.held = 'uninitialised' AND a.role = 'in'
      AND NOT EXISTS (FROM arguments o WHERE o.site = a.site AND o.role <> 'in' AND o.storage = a.storage)
    ORDER BY r.first, a.argument
"""
VIEW = """{{argument: {of}.argument, name: {of}.name, role: {of}.role, parameter: {of}.parameter, dtype: {of}.dtype,
            size: {of}.size, stride: {of}.stride, "offset": {of}.storage_offset}}"""
# The tensors of each argument that were seen first, several for a list. Addresses of different calls differ.
_SHARED = f"""
    WITH seen AS (
        SELECT t.* FROM tensors t
        QUALIFY t.place = min(t.place) OVER (PARTITION BY t.site, t.argument)
    ), one AS (
        SELECT a.site, a.argument, a.name, a.role, a.parameter, coalesce(a.storage, a.buffer, a.name) AS memory,
               t.item, t.local_call, t.storage_address, t.dtype, t.size, t.stride, t.storage_offset
        FROM arguments a LEFT JOIN seen t ON t.site = a.site AND t.argument = a.argument
        WHERE a.buffer IS NOT NULL
    )
    SELECT s.log, s.graph, s.site, ran.first AS launch, ran.step, ran.launches, s.kernel, s.kind,
           {VIEW.format(of="r")} AS read, {VIEW.format(of="w")} AS written, [r.memory, w.memory] AS memories
    FROM one r JOIN one w
      ON w.site = r.site
         AND (w.memory = r.memory OR (w.storage_address = r.storage_address AND w.local_call = r.local_call))
    JOIN sites s ON s.site = r.site JOIN ({_RAN}) ran ON ran.site = s.site
    WHERE r.role <> 'out' AND w.role <> 'in' AND list_contains($1, s.kind)
      AND (r.argument <> w.argument OR (list_contains($2, s.kind) AND r.item IS NOT DISTINCT FROM w.item))
    ORDER BY ran.first, r.argument, w.argument
"""
_GENERATED = ("cpp", "triton")
_KINDS = (*_GENERATED, "extern", "fallback")


@dataclass(frozen=True)
class UninitialisedRead:
    """An argument that is read before its memory was written."""

    log: int
    graph: int
    site: int
    argument: int
    name: str
    buffer: str | None
    launch: int
    """The first launch that read it."""
    step: int
    launches: int
    is_empty: bool


@dataclass(frozen=True)
class View:
    """An argument as a view of its memory. Its fields are None if it was never seen at run time."""

    argument: int
    name: str
    role: str
    parameter: str | None
    dtype: str | None
    size: list[int] | None
    stride: list[int] | None
    offset: int | None

    @property
    def form(self) -> tuple[object, ...]:
        return self.dtype, self.size, self.stride, self.offset


@dataclass(frozen=True)
class SharedMemory:
    """Two arguments of a launch site on the same memory, or one argument that is read and written."""

    log: int
    graph: int
    site: int
    launch: int
    step: int
    launches: int
    kernel: str
    kind: str
    read: View
    written: View
    memories: list[str]
    """The names of the memory of both in the generated code."""


def uninitialised_reads(trace: Trace) -> list[UninitialisedRead]:
    """Return the arguments that were read before they were written, in order of time."""
    found = []
    for row in sql.named(trace, _UNINITIALISED):
        sizes = row.pop("sizes") or ()
        found.append(
            UninitialisedRead(**row, is_empty=bool(sizes) and all(0 in sql.json_value(size) for size in sizes))
        )
    return found


def shared_memory(trace: Trace) -> list[list[SharedMemory]]:
    """Return, for each launch site that ran, its pairs of a read and a written argument on the same memory."""
    sites: defaultdict[int, list[SharedMemory]] = defaultdict(list)
    for row in sql.named(trace, _SHARED, [list(_KINDS), list(_GENERATED)]):
        row |= {side: view_of(row[side]) for side in ("read", "written")}
        sites[row["site"]].append(SharedMemory(**row))
    return list(sites.values())


def view_of(stored: dict[str, Any]) -> View:
    return View(**{**stored, "size": sql.json_value(stored["size"]), "stride": sql.json_value(stored["stride"])})
