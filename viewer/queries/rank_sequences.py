"""What each rank did, as sequences that can be compared: compiles, cache decisions, collectives, graphs, tensors."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakKeyDictionary

from viewer.ingest.lenient_json import loads
from viewer.ingest.rank_facts import execution_order, tensor_text
from viewer.queries import sql
from viewer.store.open import Trace

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
"""Aspect -> what is compared for it, in this order; worst first."""
MOST_LAUNCHES = 4000
_STAGES = {
    "dynamo_output_graph": "Dynamo",
    "compiled_autograd_graph": "compiled autograd",
    "aot_forward_graph": "forward",
    "aot_backward_graph": "backward",
    "aot_inference_graph": "inference",
}
_CACHES = {"fx_graph": "FX graph", "aotautograd": "AOTAutograd", "fx_graph_bundled": "bundled FX graph"}
_CACHE_NAME = r"^\w+_cache_(hit|miss|bypass)$"


@dataclass(frozen=True)
class RankItem:
    """One thing in a rank's sequence."""

    place: str
    """What it is aligned by."""
    value: str
    """What is compared; where it is not `text`, a digest."""
    text: str
    compile_id: str | None = None
    record: int | None = None
    detail: str | None = None
    """Compared too where both sides have it."""
    group: str | None = None
    """Process group."""
    duration_ns: int | None = None
    estimated_ns: float | None = None
    launch: int | None = None


Sequences = dict[int, list[RankItem]]
_held: WeakKeyDictionary[Trace, dict[Basis, Sequences]] = WeakKeyDictionary()


def sequences(trace: Trace, basis: Basis) -> Sequences:
    """log -> its sequence, in the order of the log; made once for an open trace, not to be changed."""
    held = _held.setdefault(trace, {})
    if basis not in held:
        held[basis] = _READERS[basis](trace)
    return held[basis]


def _by_log(pairs: Iterable[tuple[int, RankItem]]) -> Sequences:
    found: defaultdict[int, list[RankItem]] = defaultdict(list)
    for log, item in pairs:
        found[log].append(item)
    return dict(found)


def _compiles(trace: Trace) -> Sequences:
    rows = sql.rows(trace, "SELECT log, compile_id, frame, status, duration_ns FROM compiles ORDER BY log, compile")
    return _by_log((log, _compile(*row)) for log, *row in rows)


def _compile(compile_id: str, frame: str | None, status: str, duration_ns: int | None) -> RankItem:
    text = f"{compile_id} {frame or 'unknown frame'}: {status}"
    return RankItem(compile_id, text, text, compile_id, duration_ns=duration_ns)


def _cache_decisions(trace: Trace) -> Sequences:
    rows = sql.rows(
        trace,
        "SELECT log, record, compile_id, name FROM records WHERE event = 'artifact' AND regexp_matches(name, ?)"
        " ORDER BY record",
        [_CACHE_NAME],
    )
    return _by_log((log, _decision(*row)) for log, *row in rows)


def _decision(record: int, compile_id: str | None, name: str) -> RankItem:
    cache, _, state = name.rpartition("_")
    cache = cache.removesuffix("_cache")
    place = f"{compile_id or 'outside a compile'} {_CACHES.get(cache, cache.replace('_', ' '))} cache"
    return RankItem(place, f"{place} {state}", f"{place} {state}", compile_id, record)


def _facts(trace: Trace, kind: str, columns: str) -> list[sql.Row]:
    return sql.rows(trace, f"SELECT log, {columns} FROM rank_facts WHERE kind = ? ORDER BY record", [kind])


def _numbered() -> Callable[[int, str], str]:
    """Names places that come again within one log: the second is ``… (2)``."""
    seen: Counter[tuple[int, str]] = Counter()

    def number(log: int, place: str) -> str:
        seen[log, place] += 1
        return place if seen[log, place] == 1 else f"{place} ({seen[log, place]})"

    return number


def _graphs(trace: Trace) -> Sequences:
    number = _numbered()
    pairs = []
    for log, record, compile_id, stage, digest in _facts(trace, "graph", "record, compile_id, stage, digest"):
        place = number(log, f"{compile_id} {_STAGES.get(stage, stage)}")
        pairs.append((log, RankItem(place, digest, f"{place} graph", compile_id, record)))
    return _by_log(pairs)


def _tensors(trace: Trace) -> Sequences:
    number = _numbered()
    pairs = []
    for log, record, compile_id, digest, estimated in _facts(
        trace, "tensors", "record, compile_id, digest, estimated_ns"
    ):
        place = number(log, compile_id or "outside a compile")
        pairs.append((log, RankItem(place, digest, f"{place} operations", compile_id, record, estimated_ns=estimated)))
    return _by_log(pairs)


def _collectives(trace: Trace) -> Sequences:
    """One item for each collective; `place` names the graph that it is in."""
    number = _numbered()
    pairs: list[tuple[int, RankItem]] = []
    for log, record, compile_id, items in _facts(trace, "collectives", "record, compile_id, items"):
        place = number(log, compile_id or "outside a compile")
        pairs += [(log, _collective(item, place, compile_id, record)) for item in sql.json_value(items)]
    return _by_log(pairs)


def _collective(item: list[str | None], place: str, compile_id: str | None, record: int | None) -> RankItem:
    operator = short_operator(item[0] or "unknown collective")
    if len(item) < 5:
        return RankItem(place, operator, operator, compile_id, record)
    _, group, size, dtype, constants = item
    detail = f"{dtype or ''}{size or ' size unknown'}{f' {constants}' if constants else ''}".strip()
    return RankItem(place, operator, operator, compile_id, record, detail, group)


def short_operator(name: str) -> str:
    """``all_reduce_`` of ``torch.ops._c10d_functional.all_reduce_.default``."""
    parts = name.split(".")
    return parts[-2] if len(parts) > 2 else name


def is_wait(item: RankItem) -> bool:
    return item.value.startswith("wait_tensor")


def compiled_code(trace: Trace) -> dict[int, Counter[str]]:
    """log -> how many wrappers of each compile id it holds: a graph of these without collectives has none."""
    rows = sql.rows(
        trace,
        "SELECT log, compile_id, count(*) FROM records WHERE event = 'inductor_output_code'"
        " AND compile_id IS NOT NULL GROUP BY log, compile_id",
    )
    found: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for log, compile_id, count in rows:
        found[log][compile_id] = count
    return found


def _executed(trace: Trace) -> Sequences:
    number = _numbered()
    return _by_log(
        (log, RankItem(number(log, "order"), digest, "order in which graphs ran", None, record))
        for log, record, digest in _facts(trace, "execution", "record, digest")
    )


# Sites of collectives with what tells their launches apart: the operator, and the sizes of all arguments of a call.
_LAUNCHED = """
    WITH shapes AS (
        SELECT site, local_call, string_agg(dtype || ' ' || size, ', ' ORDER BY argument, item) AS sizes
        FROM tensors WHERE site IN (SELECT site FROM sites WHERE kind = 'collective') GROUP BY site, local_call
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


def _launched(trace: Trace) -> Sequences:
    """One item for each step that launched collectives."""
    if not sql.number(trace, "SELECT count(*) FROM sites WHERE kind = 'collective'"):
        return {}
    rows = sql.rows(
        trace,
        f"{_LAUNCHED} SELECT log, step, count(*), CAST(hash(list(kernel || ' ' || coalesce(sizes, '') ORDER BY launch))"
        " AS VARCHAR) FROM told GROUP BY log, step ORDER BY log, step",
    )
    return _by_log(
        (log, RankItem(f"step {step}", digest, f"step {step}: {count:,} collectives"))
        for log, step, count, digest in rows
    )


def launched_in_step(trace: Trace, log: int, step: int) -> list[RankItem]:
    """The collectives that a step of `log` launched, at most `MOST_LAUNCHES`."""
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
    """The order in which graphs ran, as the artifact `graph_execution` says it."""
    payload = _json(trace, record)
    order = payload.get("graph_execution_order") if isinstance(payload, dict) else None
    names = [name or "unknown" for name in execution_order(order if isinstance(order, list) else [])]
    return [RankItem(name, name, f"graph of {name}", name, record) for name in names]


def opened(
    trace: Trace, basis: Basis, left: int, right: int, a: RankItem | None, b: RankItem | None
) -> tuple[list[RankItem], list[RankItem], str] | None:
    """What is within items `a` of log `left` and `b` of log `right`, and where that is: the collectives that a step
    launched, the graphs that ran. None for items that hold nothing."""
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
    """The operations of a graph with what they make, and Inductor's estimates."""
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


_READERS: dict[Basis, Callable[[Trace], Sequences]] = {
    "compile_ids": _compiles,
    "caches": _cache_decisions,
    "collectives": _collectives,
    "launched": _launched,
    "graphs": _graphs,
    "executed": _executed,
    "tensors": _tensors,
}
