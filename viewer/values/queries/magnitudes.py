"""Queries for the map of magnitudes: tensors x steps, with a statistic of each tensor in each step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from stepscope.viewer.graphs.queries.graphs import list_graphs
from stepscope.viewer.graphs.queries.program_names import program_names
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.heatmap import KEPT_LOGS, bands, steps_between, steps_of_log
from stepscope.viewer.values.queries.values import HEALTH_INDEX
from stepscope.viewer.values.rows import HEALTH, MagnitudeMap, MagnitudeRow

KINDS = ("outputs", "parameters", "gradients")
SHOWN = ("largest", "l2", "std")
"""Statistics that a map can show."""
MOST_ROWS = 500
MOST_COLUMNS = 240
# The tensors of a log that were read, in the order in which they were first read.
_READ = """
    SELECT r.site, r.argument, r.is_written, s.graph, s.kernel, s.source_nodes, coalesce(a.buffer, a.name) FROM (
        SELECT v.site, v.argument, min(v.launch) AS first, bool_or(v.moment = 'after') AS is_written FROM value_rows v
        WHERE v.log = ? AND v.launch IS NOT NULL AND v.nan IS NOT NULL AND regexp_matches(v.dtype, 'float|complex')
        GROUP BY v.site, v.argument
    ) r JOIN sites s ON s.site = r.site JOIN arguments a ON a.site = r.site AND a.argument = r.argument
    ORDER BY r.first, r.argument
"""
_CELLS = """
    WITH slots AS (SELECT unnest($sites) AS site, unnest($arguments) AS argument, unnest($rows) AS "row"),
    columns AS (SELECT unnest($steps) AS step, unnest($columns) AS "column"),
    read AS (
        SELECT s."row", c."column", v.launch, v.step, v.{statistic} AS number, {health} AS health,
               (health, -coalesce(number, 0), v.launch) AS place
        FROM value_rows v JOIN slots s ON s.site = v.site AND s.argument = v.argument JOIN columns c ON c.step = v.step
        WHERE v.log = $log AND v.launch IS NOT NULL AND v.nan IS NOT NULL AND (v.moment = 'after' OR $is_read)
    )
    SELECT "row", "column", min(health), max(number), arg_min(launch, place), arg_min(step, place)
    FROM read GROUP BY "row", "column"
"""
Slot: TypeAlias = tuple[int, int]
"""A launch site and its argument."""


@dataclass(frozen=True)
class Tensor:
    """A row of a map with the arguments of launch sites that hold the tensor."""

    row: MagnitudeRow
    slots: list[Slot] = field(default_factory=list)


def magnitude_map(
    trace: Trace,
    log: int,
    kind: str,
    statistic: str,
    *,
    first_row: int = 0,
    first_step: int | None = None,
    last_step: int | None = None,
    most_rows: int = MOST_ROWS,
    most_columns: int = MOST_COLUMNS,
) -> MagnitudeMap:
    """Return the map of the tensors of a kind, which has no rows if none was read. A column joins neighbouring steps if
    there are too many, and has their largest number."""
    tensors = tensors_of(trace, log)
    shown = tensors[kind][first_row : first_row + most_rows]
    steps = steps_between(trace, log, first_step, last_step)
    columns = bands([0] * len(steps), most_columns)
    return MagnitudeMap(
        log=log,
        kind=kind,
        statistic=statistic,
        tensors={name: len(found) for name, found in tensors.items()},
        graphs=[graph for graph in list_graphs(trace) if graph.log == log],
        rows=[tensor.row for tensor in shown],
        first_row=first_row,
        steps=[steps[start] for start, _ in columns],
        last_steps=[steps[end - 1] for _, end in columns],
        joined_steps=[end - start for start, end in columns],
        total_steps=len(steps_of_log(trace, log)),
        classes=list(HEALTH),
        **_cells(trace, log, statistic, shown, steps, columns, is_read=kind != "outputs"),
    )


def tensors_of(trace: Trace, log: int) -> dict[str, list[Tensor]]:
    """Return the floating-point tensors of a log that were read, by kind: outputs in the order of execution, parameters
    in the order in which they were first read, and gradients in that of their parameters."""
    return trace.once(_tensors_of, log, most=KEPT_LOGS)


def place_of(trace: Trace, log: int, site: int, argument: int) -> tuple[str, int] | None:
    """Return the kind and the row of the tensor that an argument of a launch site holds; None if no map has it."""
    places = (
        (kind, row)
        for kind, found in tensors_of(trace, log).items()
        for row, tensor in enumerate(found)
        if (site, argument) in tensor.slots
    )
    return next(places, None)


def _tensors_of(trace: Trace, log: int) -> dict[str, list[Tensor]]:
    found: dict[str, dict[object, Tensor]] = {kind: {} for kind in KINDS}
    for site, argument, is_written, graph, kernel, nodes, buffer in sql.rows(trace, _READ, [log]):
        known = program_names(trace, graph).get(buffer)
        kind = {"parameter": "parameters", "gradient": "gradients"}.get(str(known.kind) if known else "", "outputs")
        name = known.name.removeprefix("gradient of ") if known and known.name else None
        key: object = (site, argument) if name is None or kind == "outputs" else name
        if kind == "outputs":
            if not is_written:
                continue
            name = " · ".join([*sql.json_value(nodes)[-2:], name or buffer])
        row = MagnitudeRow(name or buffer, site, argument, graph, kernel, buffer)
        found[kind].setdefault(key, Tensor(row)).slots.append((site, argument))
    parameters = [tensor.row.name for tensor in found["parameters"].values()]
    return {
        kind: list(tensors.values()) if kind == "outputs" else _by_module(tensors.values(), parameters)
        for kind, tensors in found.items()
    }


def _by_module(tensors: Iterable[Tensor], parameters: Iterable[str]) -> list[Tensor]:
    """Return tensors in the order of `parameters`, with those of one module next to each other."""
    order = {name: place for place, name in enumerate(parameters)}
    modules: dict[str, int] = {}

    def place(tensor: Tensor) -> tuple[int, int]:
        at = order.get(tensor.row.name, len(order))
        return modules.setdefault(tensor.row.name.rpartition(".")[0], at), at

    return sorted(tensors, key=place)


def _cells(
    trace: Trace,
    log: int,
    statistic: str,
    shown: Sequence[Tensor],
    steps: Sequence[int],
    columns: Sequence[tuple[int, int]],
    *,
    is_read: bool,
) -> dict[str, list[list[Any]]]:
    """Return the fields of a map that have a list of cells for each row."""
    parameters = {
        "log": log,
        "is_read": is_read,
        "sites": [site for tensor in shown for site, _ in tensor.slots],
        "arguments": [argument for tensor in shown for _, argument in tensor.slots],
        "rows": [row for row, tensor in enumerate(shown) for _ in tensor.slots],
        "steps": list(steps),
        "columns": [column for column, (start, end) in enumerate(columns) for _ in range(start, end)],
    }
    statement = _CELLS.format(statistic=statistic, health=HEALTH_INDEX)
    names = ("cells", "numbers", "launches", "launch_steps")
    nothing = (-1, None, -1, -1)
    fields = {name: [[none] * len(columns) for _ in shown] for name, none in zip(names, nothing, strict=True)}
    for row, column, health, number, launch, step in sql.rows(trace, statement, parameters):
        number = None if number is None else float(f"{number:.4g}")
        for name, value in zip(names, (health, number, launch, step), strict=True):
            fields[name][row][column] = value
    return fields
