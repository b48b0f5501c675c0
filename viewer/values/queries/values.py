"""Queries for value rows: their health, and the values of a launch's arguments before and after it."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import prod
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, TypeVar

from stepscope.tracer.schema.statistics import STATISTICS, Statistics
from stepscope.viewer.graphs.queries.tensors_in_force import IN_FORCE
from stepscope.viewer.graphs.rows import SiteRow
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.same_bits import name_same_bits
from stepscope.viewer.values.rows import HEALTH, ArgumentValues, Element, Health, SavedTensorRow, ValuePlace, ValueRow

Place = TypeVar("Place", bound=ValuePlace)
LIMITS: Mapping[str, float] = {
    "float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38,
    "float64": 1.7976931348623157e308, "float8_e4m3fn": 448.0, "float8_e4m3fnuz": 240.0, "float8_e5m2": 57344.0,
    "float8_e5m2fnuz": 57344.0, "complex32": 65504.0, "complex64": 3.4028234663852886e38,
    "complex128": 1.7976931348623157e308,
}  # fmt: skip
"""Largest finite value of a dtype; for a complex dtype, that of its parts."""
NOT_RECORDED = HEALTH.index("not_recorded")
_WORSE = " ".join(
    f"WHEN v.{name} > 0 THEN {HEALTH.index(health)}"
    for health in HEALTH
    for name, one in STATISTICS.items()
    if one.health == health != "zero"
)
HEALTH_INDEX = f"""
    CASE WHEN v.nan IS NULL THEN {NOT_RECORDED} {_WORSE}
         WHEN v.zero = v.looked_at AND v.zero > 0 THEN {HEALTH.index("zero")} ELSE {HEALTH.index("finite")} END
"""
"""SQL of the index into HEALTH of a row `v`."""


def health_of(index: str) -> str:
    """Return the SQL of the class of health that an index into HEALTH, given as SQL, stands for."""
    return f"({list(HEALTH)})[1 + {index}]"


@dataclass
class StoredValue(Statistics, ValuePlace):
    """A row of the index with the columns of `COLUMNS`."""

    first_bad: int | None
    exact_min: str | None
    exact_max: str | None
    health_index: int
    call: int | None
    step: int
    at_least: bool
    elements: str | None
    digest: int | None


_COMPUTED = {"health_index": HEALTH_INDEX, "at_least": "coalesce(v.at_least, false)"}
COLUMNS = ", ".join(f"{_COMPUTED.get(one.name, f'v.{one.name}')} AS {one.name}" for one in fields(StoredValue))
_UNCHANGED = [
    one.name for one in (*fields(ValuePlace), *fields(Statistics)) if one.name not in ("min", "max", "largest")
]
_OF_IDS = f"SELECT {COLUMNS} FROM value_rows v WHERE v.value IN (SELECT unnest(?::BIGINT[]))"
_VALUES_OF_CALLS = f"""
    SELECT {COLUMNS} FROM value_rows v WHERE v.launch BETWEEN $1 AND $2
      AND (v.launch = $2 OR (list_contains($3, v.call) AND list_contains($4, v.site)))
"""
_VERSIONS = """
    SELECT a.site, a.argument, a.version_site, a.version_argument, a.version_moment, a.version_item
    FROM arguments a JOIN sites s ON s.site = a.site
    WHERE s.graph = ? AND a.role <> 'out' AND a.version_site IS NOT NULL
"""
_LAST_OF_VERSION = f"""
    WITH named AS (SELECT version_site, version_argument, version_moment, version_item FROM arguments
                   WHERE site = $1 AND argument = $2 AND version_site IS NOT NULL LIMIT 1),
    last AS (SELECT max(v.launch) AS launch FROM value_rows v JOIN named n
             ON v.site = n.version_site AND v.argument = n.version_argument AND v.moment = n.version_moment
             WHERE v.launch <= $3)
    SELECT {COLUMNS} FROM value_rows v JOIN last ON v.launch = last.launch
    JOIN named n ON v.site = n.version_site AND v.argument = n.version_argument AND v.moment = n.version_moment
    WHERE n.version_item IS NULL OR v.item = n.version_item ORDER BY v.value
"""
_CALL_TREE = """
    WITH RECURSIVE up AS (
        SELECT call, parent, graph, 0 AS above FROM calls WHERE call = $1
        UNION ALL
        SELECT p.call, p.parent, p.graph, up.above + 1 FROM calls p JOIN up ON p.call = up.parent AND p.graph = up.graph
        WHERE up.above < 64
    ), down AS (
        SELECT call, 0 AS below FROM up WHERE above = (SELECT max(above) FROM up)
        UNION ALL
        SELECT c.call, down.below + 1 FROM calls c JOIN down ON c.parent = down.call WHERE down.below < 64
    )
    SELECT c.call, c.function FROM calls c JOIN down ON down.call = c.call
"""
_SIZES = f"""
    SELECT t.site, t.argument, t.item, t.local_call, t.size FROM {IN_FORCE} t WHERE list_contains($1, t.site)
    ORDER BY t.local_call, t.place
"""
_SAVED = """
    SELECT tensor, launch, argument, item, moment, file, dtype, TRY_CAST(size AS BIGINT[]) AS size,
           tensor_bytes, sha256, log
    FROM saved_tensors WHERE launch = ? ORDER BY tensor
"""


KEPT_CALLS = 64
"""Number of calls whose places an open trace keeps in memory."""
KEPT_GRAPHS = 64
"""Number of graphs whose versions an open trace keeps in memory."""


class _Version(NamedTuple):
    """The version that an argument of a site reads: the launch site that wrote it, and the place there."""

    site: int
    argument: int
    version_site: int
    version_argument: int
    version_moment: str
    version_item: int | None


class _Size(NamedTuple):
    site: int
    argument: int
    item: int | None
    local_call: int
    size: str


def has_values(trace: Trace) -> bool:
    """Return whether the trace has value rows."""
    return sql.has_rows(trace, "value_rows") or sql.has_rows(trace, "input_rows")


def value_row_count(trace: Trace) -> int:
    return int(sql.number(trace, "SELECT value FROM meta WHERE key = 'count:value_rows'") or 0)


def call_tree(trace: Trace, call: int, function: str) -> dict[int, str]:
    """Return the functions of all calls of the graph call of which `call`, of `function`, is a part."""
    return trace.once(_call_tree, call, most=KEPT_CALLS) if trace.once(_has_nested_calls) else {call: function}


def _call_tree(trace: Trace, call: int) -> dict[int, str]:
    return dict(sql.rows(trace, _CALL_TREE, [call]))


def _has_nested_calls(trace: Trace) -> bool:
    return sql.row(trace, "SELECT 1 FROM calls WHERE parent IS NOT NULL LIMIT 1") is not None


def value_rows(trace: Trace, found: Sequence[StoredValue]) -> list[ValueRow]:
    """Return shown rows for stored ones. The sizes of tensors give the index of the first bad element."""
    bad = [row for row in found if row.first_bad is not None]
    sizes = _sizes(trace, bad) if bad else {}
    return [_value_row(row, sizes.get(row.value)) for row in found]


def values_of(trace: Trace, values: Iterable[int]) -> dict[int, ValueRow]:
    """Return rows by their ids."""
    found = sql.records(StoredValue, trace, _OF_IDS, [sorted({*values})])
    return {row.value: row for row in value_rows(trace, found)}


def _value_row(row: StoredValue, size: list[int] | None) -> ValueRow:
    low, high = _exact(row.dtype, row.min, row.exact_min), _exact(row.dtype, row.max, row.exact_max)
    return ValueRow(
        **{name: getattr(row, name) for name in _UNCHANGED},
        min=low,
        max=high,
        largest=row.largest if low is None or high is None else max(abs(low), abs(high)),
        first_bad=row.first_bad,
        first_bad_index=unravelled(row.first_bad, size) if size is not None and prod(size) == row.numel else None,
        health=HEALTH[row.health_index],
        at_least=row.at_least,
        elements=_elements(row.elements),
        digest=None if row.digest is None else f"{row.digest % (1 << 64):016x}",
    )


def _exact(dtype: str, number: float | None, text: str | None) -> int | float | None:
    """Return the exact number: an int for integer types."""
    whole = dtype.startswith(("int", "uint", "bool"))
    try:
        if text is not None:
            return int(text) if whole else float(text)
        return int(number) if whole and number is not None else number
    except ValueError:
        return number


def _elements(text: str | None) -> list[Element] | None:
    """Return the elements, with integers beyond 2**53 as texts because a browser would round them."""
    found: list[Element] | None = sql.json_value(text)
    if found is None:
        return None
    return [str(one) if isinstance(one, int) and abs(one) > 1 << 53 else one for one in found]


def unravelled(flat: int | None, size: Sequence[int]) -> list[int] | None:
    """Return a flat index as an index into each dimension; None if it is outside of `size`."""
    if flat is None or not size or not 0 <= flat < prod(size):
        return None
    index = []
    for length in reversed(size):
        flat, at = divmod(flat, length)
        index.append(at)
    return index[::-1]


def _sizes(trace: Trace, found: Sequence[StoredValue]) -> dict[int, list[int]]:
    """Return the size of the tensor of each value, as last recorded up to its call."""
    seen: defaultdict[tuple[int, int, int | None], list[tuple[int, str]]] = defaultdict(list)
    for told_size in sql.records(_Size, trace, _SIZES, [sorted({row.site for row in found})]):
        seen[told_size.site, told_size.argument, told_size.item].append((told_size.local_call, told_size.size))
    calls = sorted({row.call for row in found if row.call is not None})
    numbers: dict[int, int] = dict(
        sql.rows(trace, "SELECT call, local_call FROM calls WHERE list_contains(?, call)", [calls])
    )
    sizes: dict[int, list[int]] = {}
    for row in found:
        told = seen.get((row.site, row.argument, row.item), [])
        if until := bisect_right(told, numbers.get(-1 if row.call is None else row.call, -1), key=itemgetter(0)):
            sizes[row.value] = sql.json_value(told[until - 1][1])
    return sizes


def launch_values(
    trace: Trace, launch: int, call: int, site: SiteRow, tree: Iterable[int], first: int
) -> list[ArgumentValues]:
    """Return the values of each argument before and after a launch of `site`. `tree` are the calls of the graph call
    of which `call` is a part, and `first` is their first launch."""
    versions = trace.once(_versions, site.graph, most=KEPT_GRAPHS).get(site.site, [])
    read_sites = sorted({row.version_site for row in versions})
    asked = [first if versions else launch, launch, sorted(tree), read_sites]
    # DuckDB would take longer to plan the sorting than Python takes to sort.
    found = sorted(sql.records(StoredValue, trace, _VALUES_OF_CALLS, asked), key=attrgetter("value"))
    chosen = {version.argument: _latest(found, call, launch, version) for version in versions}
    stored = {row.value: row for row in found if row.launch == launch}
    stored |= {row.value: row for rows in chosen.values() for row in rows}
    rows = {row.value: row for row in value_rows(trace, [stored[value] for value in sorted(stored)])}
    name_same_bits(trace, list(rows.values()))
    own = [row for row in rows.values() if row.launch == launch]
    read = {argument: [rows[row.value] for row in picked] for argument, picked in chosen.items()}
    saved = sql.records(SavedTensorRow, trace, _SAVED, [launch]) if sql.has_rows(trace, "saved_tensors") else []
    result = []
    for argument in (row.argument for row in site.arguments):
        mine = [row for row in own if row.argument == argument]
        before = [row for row in mine if row.moment == "before"] or read.get(argument, [])
        after = [row for row in mine if row.moment == "after"]
        result.append(ArgumentValues(argument, before, after, [row for row in saved if row.argument == argument]))
    return result


def last_of_version(trace: Trace, site: int, argument: int, launch: int) -> tuple[list[ValueRow], int | None]:
    """Return the latest rows of the version that an argument reads, up to `launch`, and their step."""
    found = sql.records(StoredValue, trace, _LAST_OF_VERSION, [site, argument, launch])
    return value_rows(trace, found), found[0].step if found else None


def _versions(trace: Trace, graph: int) -> dict[int, list[_Version]]:
    """Return the versions that the arguments of each launch site of a graph read."""
    found: defaultdict[int, list[_Version]] = defaultdict(list)
    for version in sql.records(_Version, trace, _VERSIONS, [graph]):
        found[version.site].append(version)
    return found


def _latest(found: Sequence[StoredValue], call: int, launch: int, version: _Version) -> list[StoredValue]:
    """Return the last stored rows of a version before `launch` began, of its own call if there are any."""
    place = (version.version_site, version.version_argument, version.version_moment)
    rows = [row for row in found if (row.site, row.argument, row.moment) == place]
    own = last_before([row for row in rows if row.call == call], launch, version.version_item)
    return own or last_before(rows, launch, version.version_item)


def last_before(rows: Iterable[Place], launch: int, item: int | None) -> list[Place]:
    """Return the last of the rows of a version, of one item if that is given, before `launch` began."""
    fitting = [
        row
        for row in rows
        if (row.launch < launch or (row.launch == launch and row.moment == "before")) and item in (None, row.item)
    ]
    last = max((row.launch for row in fitting), default=None)
    return [row for row in fitting if row.launch == last]


def worst(classes: Iterable[int]) -> Health:
    """Return the worst of some classes, given by their indices; ``not_recorded`` if there are none."""
    health: Health = HEALTH[min(classes, default=NOT_RECORDED)]
    return health


def chosen(values: Sequence[tuple[int, int]], limit: int) -> list[int]:
    """Return at most `limit` ids of pairs (id, class): evenly chosen ones, and those with NaN or infinities."""
    if len(values) <= limit:
        return [value for value, _ in values]
    alarming = evenly([value for value, health in values if health <= HEALTH.index("negative_infinity")], limit // 2)
    rest = evenly([value for value, _ in values], limit - len(alarming))
    return sorted({*alarming, *rest})


def evenly(values: Sequence[Any], count: int) -> list[Any]:
    """Return at most `count` of the values at even distances, with the first and the last."""
    if len(values) <= count:
        return list(values)
    if count < 2:
        return list(values[:count])
    return [values[i * (len(values) - 1) // (count - 1)] for i in range(count)]
