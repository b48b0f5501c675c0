"""Reads each rank's compiles, cache decisions, collectives, graphs and tensors as comparable sequences."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from stepscope.viewer.graphs.queries.tensors_in_force import IN_FORCE
from stepscope.viewer.ingest.lenient_json import loads
from stepscope.viewer.ingest.torch_trace.rank_facts import execution_order, tensor_text
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

Aspect = Literal["compile_ids", "caches", "collectives", "graphs", "tensors", "times"]
Basis = Literal["compile_ids", "caches", "collectives", "launched", "graphs", "executed", "tensors"]
BASES: dict[Aspect, tuple[Basis, ...]] = {
    "collectives": ("collectives", "launched"),
    "compile_ids": ("compile_ids",),
    "graphs": ("graphs", "executed"),
    "tensors": ("tensors",),
    "caches": ("caches",),
    "times": (),
}
"""Sequences that are compared for each aspect, in order; the most severe aspect comes first."""
MOST_LAUNCHES = 4000
_STAGES = {
    "dynamo_output_graph": "Dynamo",
    "compiled_autograd_graph": "compiled autograd",
    "aot_forward_graph": "forward",
    "aot_backward_graph": "backward",
    "aot_inference_graph": "inference",
}
_CACHES = {"fx_graph": "FX graph", "aotautograd": "AOTAutograd", "dynamo": "Dynamo", "profile": "PGO profile"}
_DECIDED = "state IN ('hit', 'miss', 'bypass')"


@dataclass(frozen=True)
class RankItem:
    """One item of a rank's sequence."""

    place: str
    """Key by which items are aligned."""
    value: str
    """Compared value: `text` or a digest."""
    text: str
    compile_id: str | None = None
    record: int | None = None
    detail: str | None = None
    """Detail, which is compared if both sides have it."""
    group: str | None = None
    """Name of the process group."""
    duration_ns: int | None = None
    estimated_ns: float | None = None
    launch: int | None = None


Items = list[RankItem]
_FACTS: dict[str, Basis] = {
    "graph": "graphs",
    "collectives": "collectives",
    "tensors": "tensors",
    "execution": "executed",
}


@dataclass(frozen=True)
class Whole:
    """Summary of a log's sequence; sequences with equal digests are equal."""

    digest: str
    items: int


def wholes(trace: Trace) -> dict[Basis, dict[int, Whole]]:
    """Return the summaries of all sequences in the trace, by basis and log."""
    found: dict[Basis, dict[int, Whole]] = {basis: {} for bases in BASES.values() for basis in bases}
    statements: dict[Basis, str] = {
        "compile_ids": "SELECT log, count(*), hash(list(concat_ws('|', compile_id, frame, status) ORDER BY compile))"
        " FROM compiles GROUP BY log",
        "caches": "SELECT log, count(*), hash(list(concat_ws('|', compile_id, cache, state) ORDER BY record))"
        f" FROM cache_lookups WHERE {_DECIDED} GROUP BY log",
    }
    if sql.number(trace, "SELECT count(*) FROM sites WHERE kind = 'collective'"):
        statements["launched"] = (
            f"{_LAUNCHED} SELECT log, count(*), hash(list(concat_ws('|', step, kernel, sizes) ORDER BY launch))"
            " FROM told GROUP BY log"
        )
    for basis, statement in statements.items():
        for log, count, digest in sql.rows(trace, statement):
            found[basis][log] = Whole(str(digest), count)
    for log, kind, count, digest in sql.rows(
        trace,
        "SELECT log, kind, count(*), hash(list(concat_ws('|', compile_id, if(kind = 'graph', stage, ''), digest)"
        " ORDER BY record)) FROM rank_facts GROUP BY log, kind",
    ):
        found[_FACTS[kind]][log] = Whole(str(digest), count)
    return found


def sequence(trace: Trace, basis: Basis, log: int) -> Items:
    """Return a sequence in log order; it is shared within an open trace and must not be modified."""
    return trace.once(_READERS[basis], log)


def _compiles(trace: Trace, log: int) -> Items:
    found = []
    for compile_id, frame, status, duration_ns in sql.rows(
        trace, "SELECT compile_id, frame, status, duration_ns FROM compiles WHERE log = ? ORDER BY compile", [log]
    ):
        text = f"{compile_id} {frame or 'unknown frame'}: {status}"
        found.append(RankItem(compile_id, text, text, compile_id, duration_ns=duration_ns))
    return found


def _cache_decisions(trace: Trace, log: int) -> Items:
    found = []
    for record, compile_id, cache, state in sql.rows(
        trace,
        f"SELECT record, compile_id, cache, state FROM cache_lookups WHERE log = ? AND {_DECIDED} ORDER BY record",
        [log],
    ):
        place = f"{compile_id or 'outside a compile'} {_CACHES.get(cache, cache)} cache"
        found.append(RankItem(place, f"{place} {state}", f"{place} {state}", compile_id, record))
    return found


def _facts(trace: Trace, log: int, kind: str, columns: str) -> list[sql.Row]:
    return sql.rows(trace, f"SELECT {columns} FROM rank_facts WHERE log = ? AND kind = ? ORDER BY record", [log, kind])


def _numbered() -> Callable[[str], str]:
    """Return a function that numbers repeated places, so that the second becomes ``… (2)``."""
    seen: Counter[str] = Counter()

    def number(place: str) -> str:
        seen[place] += 1
        return place if seen[place] == 1 else f"{place} ({seen[place]})"

    return number


def _graphs(trace: Trace, log: int) -> Items:
    number, found = _numbered(), []
    for record, compile_id, stage, digest in _facts(trace, log, "graph", "record, compile_id, stage, digest"):
        place = number(f"{compile_id} {_STAGES.get(stage, stage)}")
        found.append(RankItem(place, digest, f"{place} graph", compile_id, record))
    return found


def _tensors(trace: Trace, log: int) -> Items:
    number, found = _numbered(), []
    for record, compile_id, digest, estimated in _facts(
        trace, log, "tensors", "record, compile_id, digest, estimated_ns"
    ):
        place = number(compile_id or "outside a compile")
        found.append(RankItem(place, digest, f"{place} operations", compile_id, record, estimated_ns=estimated))
    return found


def _collectives(trace: Trace, log: int) -> Items:
    """Return one item per collective, whose `place` names its graph."""
    number, found = _numbered(), []
    for record, compile_id, items in _facts(trace, log, "collectives", "record, compile_id, items"):
        place = number(compile_id or "outside a compile")
        found += [_collective(item, place, compile_id, record) for item in sql.json_value(items)]
    return found


def _collective(item: list[str | None], place: str, compile_id: str | None, record: int | None) -> RankItem:
    operator = short_operator(item[0] or "unknown collective")
    if len(item) < 5:
        return RankItem(place, operator, operator, compile_id, record)
    _, group, size, dtype, constants = item
    detail = f"{dtype or ''}{size or ' size unknown'}{f' {constants}' if constants else ''}".strip()
    return RankItem(place, operator, operator, compile_id, record, detail, group)


def short_operator(name: str) -> str:
    """Return the operator's short name: ``all_reduce_`` for ``torch.ops._c10d_functional.all_reduce_.default``."""
    parts = name.split(".")
    return parts[-2] if len(parts) > 2 else name


def is_wait(item: RankItem) -> bool:
    return item.value.startswith("wait_tensor")


def counted_collectives(trace: Trace) -> dict[int, tuple[int, int]]:
    """Return the number of collectives without waits in each log, and of those not waited for in the same graph."""
    listed = sql.rows(
        trace, "SELECT digest, any_value(items) FROM rank_facts WHERE kind = 'collectives' GROUP BY digest"
    )
    counts = {digest: _counted(sql.json_value(items)) for digest, items in listed}
    found: defaultdict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for log, digest, times in sql.rows(
        trace, "SELECT log, digest, count(*) FROM rank_facts WHERE kind = 'collectives' GROUP BY log, digest"
    ):
        collectives, waits = counts[digest]
        before, missing = found[log]
        found[log] = before + times * collectives, missing + times * max(0, collectives - waits)
    return found


def _counted(items: list[list[str | None]]) -> tuple[int, int]:
    waits = sum("wait_tensor" in (item[0] or "") for item in items)
    return len(items) - waits, waits


def compiled_code(trace: Trace) -> dict[int, Counter[str]]:
    """Return the number of wrappers per compile id in each log, including graphs without collectives."""
    rows = sql.rows(
        trace,
        "SELECT log, compile_id, count(*) FROM records WHERE event = 'inductor_output_code'"
        " AND compile_id IS NOT NULL GROUP BY log, compile_id",
    )
    found: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for log, compile_id, count in rows:
        found[log][compile_id] = count
    return found


def _executed(trace: Trace, log: int) -> Items:
    number = _numbered()
    return [
        RankItem(number("order"), digest, "order in which graphs ran", None, record)
        for record, digest in _facts(trace, log, "execution", "record, digest")
    ]


# Launches of collectives with their operator and the sizes of all arguments of the call, except for all_to_all.
_LAUNCHED = f"""
    WITH shapes AS (
        SELECT site, local_call, string_agg(dtype || ' ' || size, ', ' ORDER BY argument, item) AS sizes
        FROM (SELECT * FROM {IN_FORCE} WHERE site IN (SELECT site FROM sites WHERE kind = 'collective')
              QUALIFY rank() OVER (PARTITION BY site, argument, local_call ORDER BY place DESC) = 1)
        GROUP BY site, local_call
    ), launched AS (
        SELECT l.log, l.launch, l.step, l.site, s.kernel, c.local_call
        FROM launches l JOIN sites s ON s.site = l.site JOIN calls c ON c.call = l.call
        WHERE s.kind = 'collective' AND NOT contains(s.kernel, 'wait_tensor')
    ), told AS (
        SELECT n.log, n.launch, n.step, n.kernel, n.site,
               CASE WHEN NOT contains(n.kernel, 'all_to_all') THEN t.sizes END AS sizes
        FROM launched n ASOF LEFT JOIN shapes t ON t.site = n.site AND t.local_call <= n.local_call
    )
"""


def _launched(trace: Trace, log: int) -> Items:
    """Return one item per step that launched collectives."""
    rows = sql.rows(
        trace,
        f"{_LAUNCHED} SELECT step, count(*), hash(list(concat_ws('|', kernel, sizes) ORDER BY launch)) FROM told"
        " WHERE log = ? GROUP BY step ORDER BY step",
        [log],
    )
    return [
        RankItem(f"step {step}", str(digest), f"step {step}: {count:,} collectives") for step, count, digest in rows
    ]


def launched_in_step(trace: Trace, log: int, step: int) -> list[RankItem]:
    """Return the collectives that a step of `log` launched, at most `MOST_LAUNCHES`."""
    rows = sql.rows(
        trace,
        f"{_LAUNCHED} SELECT t.launch, t.kernel, t.sizes, g.compile_id FROM told t JOIN sites s ON s.site = t.site"
        " JOIN graphs g ON g.graph = s.graph WHERE t.log = ? AND t.step = ? ORDER BY t.launch LIMIT ?",
        [log, step, MOST_LAUNCHES],
    )
    found = []
    for launch, kernel, sizes, compile_id in rows:
        operator = short_operator(kernel)
        text = f"{operator} {sizes or ''}".strip()
        found.append(RankItem(operator, text, text, compile_id, launch=launch))
    return found


def executed_graphs(trace: Trace, record: int) -> list[RankItem]:
    """Return the graphs in the order in which they ran, from the artifact `graph_execution`."""
    payload = _json(trace, record)
    order = payload.get("graph_execution_order") if isinstance(payload, dict) else None
    names = [name or "unknown" for name in execution_order(order if isinstance(order, list) else [])]
    return [RankItem(name, name, f"graph of {name}", name, record) for name in names]


def opened(
    trace: Trace, basis: Basis, left: int, right: int, a: RankItem | None, b: RankItem | None
) -> tuple[list[RankItem], list[RankItem], str] | None:
    """Return the contents of items `a` and `b` and a name for them, or None if items of `basis` have no contents.

    The contents are the collectives that a step launched or the graphs that ran."""
    if basis == "launched":
        step = min(_step(item) for item in (a, b) if item is not None)
        ours, theirs = (
            launched_in_step(trace, log, step) if item is not None and _step(item) == step else []
            for log, item in ((left, a), (right, b))
        )
        return ours, theirs, f"step {step}"
    if basis == "executed" and a is not None and b is not None and a.record is not None and b.record is not None:
        return executed_graphs(trace, a.record), executed_graphs(trace, b.record), "the order in which graphs ran"
    return None


def _step(item: RankItem) -> int:
    return int(item.place.split()[1])


def operations(trace: Trace, record: int) -> list[RankItem]:
    """Return the operations of a graph with their outputs and Inductor's estimates in ns."""
    payload = _json(trace, record)
    ops = payload.get("ops") if isinstance(payload, dict) else None
    found = []
    for op in ops if isinstance(ops, list) else []:
        text, time = tensor_text(op), op.get("estimated_runtime_ns") if isinstance(op, dict) else None
        estimated = float(time) if isinstance(time, (int, float)) and not isinstance(time, bool) else None
        found.append(RankItem(text, text, text, None, record, estimated_ns=estimated))
    return found


def _json(trace: Trace, record: int) -> Any:
    try:
        return loads(trace.payload(record))
    except ValueError:
        return None


_READERS: dict[Basis, Callable[[Trace, int], Items]] = {
    "compile_ids": _compiles,
    "caches": _cache_decisions,
    "collectives": _collectives,
    "launched": _launched,
    "graphs": _graphs,
    "executed": _executed,
    "tensors": _tensors,
}
