"""Queries for tensors that a forward call saved and whose values its backward call found changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stepscope.tracer.schema.statistics import NONFINITE
from stepscope.viewer.graphs.queries.graphs import site_in_call
from stepscope.viewer.kernel_source.access_bounds import item_bytes
from stepscope.viewer.memory.queries.identity import FIRST_CALL
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.changed_values import step_parts
from stepscope.viewer.values.queries.values import values_of
from stepscope.viewer.values.rows import ValueRow

MOST_PAIRS = 1_000
"""Number of tensors that may have changed and are looked at."""
_COMPARED = (*NONFINITE, "zero", "min", "max", "exact_min", "exact_max", "digest")
_READ = "v.nan IS NOT NULL AND v.looked_at = v.numel AND v.item IS NULL AND v.part IS NULL"
_PLACE = "v.call, coalesce(a.storage, a.buffer, a.name) AS name"
# A storage is the same in two calls if both lead to one storage of the call that first used it.
_CHANGED = f"""
    WITH ran AS (
        SELECT m.call, m.log, m.local_call, m.layout, c.graph, g.compile_id, g.phase FROM measured_calls m
        JOIN calls c ON c.call = m.call JOIN graphs g ON g.graph = c.graph
        WHERE c.state = 'ok' AND g.phase IN ('forward', 'backward')
          AND m.call BETWEEN (SELECT min(call) FROM value_rows WHERE value BETWEEN $1 AND $2)
                         AND (SELECT max(call) FROM value_rows WHERE value BETWEEN $1 AND $2)
    ), used AS (
        SELECT m.call, m.log, m.phase, m.compile_id, s.name, s.kind, s.storage_bytes,
               {FIRST_CALL} AS by_call,
               coalesce(s.met_as, s.storage) AS by_storage
        FROM ran m JOIN layout_storages s ON s.layout = m.layout
        WHERE s.storage_bytes > 0 AND (m.phase = 'forward' OR s.kind = 'input')
    ), made AS (
        SELECT b.call AS backward, f.call AS forward FROM used b
        JOIN used f ON f.log = b.log AND f.by_call = b.by_call AND f.by_storage = b.by_storage
        WHERE b.phase = 'backward' AND f.phase = 'forward' AND f.kind <> 'input' AND f.compile_id = b.compile_id
        GROUP BY ALL
    ), counted AS (
        SELECT call, graph, phase, count(*) FILTER (phase = 'forward') OVER before AS forwards,
               max(call) FILTER (phase = 'forward') OVER before AS last_forward
        FROM ran WHERE compile_id IS NOT NULL WINDOW before AS (PARTITION BY log, compile_id ORDER BY call)
    ), since AS (
        SELECT call, last_forward, forwards - lag(forwards, 1, 0) OVER (PARTITION BY graph ORDER BY call) AS forwards
        FROM counted WHERE phase = 'backward'
    ), waiting AS (
        SELECT call AS backward, last_forward AS forward FROM since
        WHERE forwards = 1 AND call NOT IN (SELECT backward FROM made)
    ), paired AS (
        SELECT backward, max(forward) AS forward FROM made GROUP BY backward HAVING count(*) = 1
        UNION ALL SELECT * FROM waiting
    ), same AS (
        SELECT p.forward, p.backward, f.name AS saved_as, b.name AS read_as, b.storage_bytes FROM paired p
        JOIN used b ON b.call = p.backward
        JOIN used f ON f.call = p.forward AND f.by_call = b.by_call AND f.by_storage = b.by_storage
    ), readings AS (
        SELECT {_PLACE}, min(v.value) AS first, max(v.value) AS last
        FROM value_rows v JOIN arguments a ON a.site = v.site AND a.argument = v.argument
        WHERE v.value BETWEEN $1 AND $2 GROUP BY ALL
    )
    SELECT o.value AS saved, v.value AS read, same.forward, same.backward, same.saved_as, same.read_as,
           same.storage_bytes
    FROM same JOIN readings f ON f.call = same.forward AND f.name = same.saved_as
    JOIN readings b ON b.call = same.backward AND b.name = same.read_as
    JOIN value_rows o ON o.value = f.last JOIN value_rows v ON v.value = b.first
    WHERE v.moment = 'before' AND o.dtype = v.dtype AND o.numel = v.numel AND {_READ} AND {_READ.replace("v.", "o.")}
      AND ({" OR ".join(f"o.{name} IS DISTINCT FROM v.{name}" for name in _COMPARED)})
    ORDER BY v.value LIMIT {MOST_PAIRS}
"""
_LAST_WRITE = """
    SELECT max(l.launch) FROM launches l JOIN arguments a ON a.site = l.site
    WHERE l.call = ? AND a.role <> 'in' AND coalesce(a.storage, a.buffer, a.name) = ?
"""
_WRITER = f"""
    WITH used AS (
        SELECT m.call, s.name, {FIRST_CALL} AS by_call, coalesce(s.met_as, s.storage) AS by_storage
        FROM measured_calls m JOIN layout_storages s ON s.layout = m.layout WHERE m.call BETWEEN $1 AND $2
          AND m.log = (SELECT log FROM calls WHERE call = $2)
    )
    SELECT max(l.launch) FROM used b JOIN used o
      ON o.by_call = b.by_call AND o.by_storage = b.by_storage AND o.call > $1 AND o.call < $2
    JOIN launches l ON l.call = o.call JOIN arguments a ON a.site = l.site AND a.role <> 'in'
     AND coalesce(a.storage, a.buffer, a.name) = o.name
    WHERE b.call = $2 AND b.name = $3
"""
_CALLS = "SELECT call, log, local_call, graph, step FROM calls WHERE list_contains(?, call)"


@dataclass(frozen=True)
class ChangedSaved:
    """A tensor that changed between the forward call that saved it and the backward call that read it."""

    saved: ValueRow
    """The last values that the forward call read or wrote."""
    read: ValueRow
    """The values that the backward call found."""
    saved_as: str
    """Its name in the forward graph."""
    read_as: str
    """Its name in the backward graph."""
    log: int
    step: int
    forward: int
    """The forward graph."""
    backward: int
    """The backward graph."""
    writer: int | None
    """A launch of another call that wrote it in between; None if none did."""


@dataclass(frozen=True)
class _Pair:
    saved: int
    read: int
    forward: int
    backward: int
    saved_as: str
    read_as: str
    storage_bytes: int


@dataclass(frozen=True)
class _Call:
    call: int
    log: int
    local_call: int
    graph: int
    step: int


def changed_saved(trace: Trace) -> Iterator[ChangedSaved]:
    """Yield the tensors whose values the backward pass found changed, in order of time.

    Values are compared by digest if the tensor has the same size and stride in both graphs, else by minimum, maximum,
    and the numbers of zeros, NaN and infinities. Both readings cover the whole storage."""
    for start, end in step_parts(trace):
        pairs = sql.records(_Pair, trace, _CHANGED, [start, end])
        if not pairs:
            continue
        rows = values_of(trace, (value for pair in pairs for value in (pair.saved, pair.read)))
        numbers = sorted({call for pair in pairs for call in (pair.forward, pair.backward)})
        calls = {one.call: one for one in sql.records(_Call, trace, _CALLS, [numbers])}
        for pair in pairs:
            saved, read = rows[pair.saved], rows[pair.read]
            forward, backward = calls[pair.forward], calls[pair.backward]
            if _is_changed(trace, pair, (saved, forward), (read, backward)):
                yield ChangedSaved(
                    saved=saved, read=read, saved_as=pair.saved_as, read_as=pair.read_as, log=backward.log,
                    step=backward.step, forward=forward.graph, backward=backward.graph,
                    writer=sql.number(trace, _WRITER, [pair.forward, pair.backward, pair.read_as]),
                )  # fmt: skip


def _is_changed(trace: Trace, pair: _Pair, saved: tuple[ValueRow, _Call], read: tuple[ValueRow, _Call]) -> bool:
    before, after = saved[0], read[0]
    forms = [_form(trace, *one) for one in (saved, read)]
    if any(form is None or form[0] != pair.storage_bytes for form in forms):
        return False
    write = sql.number(trace, _LAST_WRITE, [pair.forward, pair.saved_as])
    if write is not None and (before.launch < write or (before.launch == write and before.moment != "after")):
        return False
    if any(getattr(before, name) != getattr(after, name) for name in (*NONFINITE, "zero", "min", "max")):
        return True
    return forms[0] == forms[1] and None not in (before.digest, after.digest)


def _form(trace: Trace, row: ValueRow, call: _Call) -> tuple[int, list[int], list[int]] | None:
    """Return the bytes of a tensor without gaps, its size and its stride; None if it has gaps or is not known."""
    site = site_in_call(trace, call.graph, row.site, call.local_call)
    tensors = next((one.tensors for one in site.arguments if one.argument == row.argument), [])
    if len(tensors) != 1:
        return None
    size, stride = tensors[0]["size"], tensors[0]["stride"]
    if not size or not stride or row.numel != 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True)):
        return (row.numel * item_bytes(row.dtype), [], []) if size == [] and row.numel == 1 else None
    return row.numel * item_bytes(row.dtype), size, stride
