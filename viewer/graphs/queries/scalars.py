"""Arguments of launches that are not tensors: names, types, and values in one call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from stepscope.viewer.graphs.rows import ScalarRow, SiteRow
from stepscope.viewer.kernel_source.arithmetic import Number, number_of, value_text
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_SYMBOLS = """
    SELECT v.symbol, v.value FROM call_symbols c JOIN symbol_values v ON v.assignment = c.assignment
    WHERE c.call = $1 AND v.launches <= (SELECT count(*) FROM launches WHERE call = $1 AND launch < $2)
    ORDER BY v.launches
"""


def scalars_of(trace: Trace, sites: Sequence[int]) -> defaultdict[int, list[ScalarRow]]:
    """Return the scalar arguments of each site, with a value if it is the same in each call."""
    rows: defaultdict[int, list[ScalarRow]] = defaultdict(list)
    if not sql.has_rows(trace, "scalars"):
        return rows
    for site, *rest in sql.rows(
        trace,
        "SELECT site, position, name, expression, type, value FROM scalars WHERE list_contains($1, site)"
        " ORDER BY site, scalar",
        [list(sites)],
    ):
        rows[site].append(ScalarRow(*rest))
    return rows


def symbols_at(trace: Trace, call: int, launch: int) -> dict[str, Number]:
    """Return the values of the symbols of a call when one of its launches began."""
    if not sql.has_rows(trace, "symbol_values"):
        return {}
    found = ((symbol, number_of(value)) for symbol, value in sql.rows(trace, _SYMBOLS, [call, launch]))
    return {symbol: value for symbol, value in found if value is not None}


def in_call(site: SiteRow, symbols: Mapping[str, Number]) -> SiteRow:
    """Return `site` with the values of its scalar arguments."""
    return replace(site, scalars=[_in_call(row, symbols) for row in site.scalars])


def _in_call(row: ScalarRow, symbols: Mapping[str, Number]) -> ScalarRow:
    value = row.value if row.value is not None else value_text(row.expression, symbols.get)
    number = number_of(value)
    return replace(row, value=value, type=row.type or (type(number).__name__ if number is not None else None))


def parameter_numbers(site: SiteRow) -> dict[str, int]:
    """Return the integers among the scalar arguments of a launch, by the names of the kernel's parameters."""
    found = {row.name: number_of(row.value) for row in site.scalars if row.name is not None}
    return {name: int(value) for name, value in found.items() if isinstance(value, int)}
