"""Views of arbitrary JSON as facts, lists, tables and trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stepscope.viewer.records.rows import (
    MAX_DEPTH,
    MAX_ROWS,
    Block,
    Cell,
    Column,
    Fact,
    FactsView,
    ListView,
    TableView,
    TextView,
    TreeNode,
    TreeView,
)
from stepscope.viewer.records.views.measures import is_short, value_of
from stepscope.viewer.records.views.record import LoggedRecord
from stepscope.viewer.records.views.shape import parsed, shown

_MOST_COLUMNS = 16
_MOST_NODES = 5_000
_LONG = 2_000


def read_json(record: LoggedRecord) -> list[Block]:
    return json_blocks(parsed(record.payload))


def json_blocks(value: Any, title: str = "") -> list[Block]:
    """Return blocks that show `value`."""
    if isinstance(value, dict):
        return _object(value, title)
    if isinstance(value, list):
        return [_list(value, title)]
    if isinstance(value, str) and not is_short(value):
        return [TextView(value, title)]
    return [FactsView([Fact(title or "value", value_of(title, value))])]


def facts_of(value: dict[str, Any], title: str = "") -> FactsView:
    """Return the fields as facts, without those that are null."""
    return FactsView([Fact(name, value_of(name, item)) for name, item in value.items() if item is not None], title)


def table(names: list[str], rows: list[list[Any]], title: str = "") -> TableView:
    """Return a table of JSON values, in which columns of only numbers are numeric."""
    kept = rows[:MAX_ROWS]
    columns = [
        Column(name, bool(kept) and all(_is_number(row[place]) for row in kept)) for place, name in enumerate(names)
    ]
    cells = [[_cell(name, item) for name, item in zip(names, row, strict=True)] for row in kept]
    return TableView(columns, cells, title, len(rows) - len(kept))


def pairs(
    columns: tuple[str, str], values: dict[str, Any], cell: Callable[[Any], Cell], title: str, most: int
) -> TableView:
    """Return a table of names and their values, at most `most`, which `cell` shows."""
    rows = [[Cell(name, mono=True), cell(item)] for name, item in list(values.items())[:most]]
    return TableView([Column(name) for name in columns], rows, title, max(0, len(values) - most))


def _cell(name: str, item: Any) -> Cell:
    value = value_of(name, item)
    if value.text is not None and len(value.text) > _LONG:
        return Cell(value.text[:_LONG] + "…", "the download contains all of it")
    return value


def _is_number(item: Any) -> bool:
    return item is None or (isinstance(item, int | float) and not isinstance(item, bool))


def _object(value: dict[str, Any], title: str) -> list[Block]:
    if not value:
        return [FactsView([Fact(title or "content", Cell("empty"))])]
    if len(value) > 1 and all(isinstance(item, dict) for item in value.values()):
        rows = [{"": name, **item} for name, item in value.items()]
        if _same_fields(rows):
            return [_table_of(rows, title)]
    short = {name: item for name, item in value.items() if is_short(item)}
    blocks: list[Block] = [facts_of(short, title)] if any(item is not None for item in short.values()) else []
    missing = [name for name, item in short.items() if item is None]
    if missing:
        blocks.append(FactsView([Fact("null", Cell(", ".join(missing)))]))
    for name, item in value.items():
        if name not in short:
            heading = f"{title}.{name}" if title else name
            blocks += [_list(item, heading)] if isinstance(item, list) else _inner(item, heading)
    return blocks


def _inner(item: Any, title: str) -> list[Block]:
    if isinstance(item, str):
        return [TextView(item, title)]
    if all(is_short(part) for part in item.values()):
        return [facts_of(item, title)]
    return [TreeView(_nodes(item), title)]


def _list(value: list[Any], title: str) -> Block:
    if value and all(isinstance(item, dict) for item in value) and _same_fields(value):
        return _table_of(value, title)
    if all(is_short(item) for item in value):
        items = [Cell(shown(item)) for item in value[:MAX_ROWS]]
        return ListView(items or [Cell("empty")], title)
    if all(isinstance(item, str) for item in value):
        return TextView("\n\n".join(value), title)
    return TreeView(_nodes(value), title)


def _same_fields(rows: list[dict[str, Any]]) -> bool:
    names = dict.fromkeys(name for row in rows[:MAX_ROWS] for name in row)
    flat = all(not isinstance(item, dict) for row in rows[:MAX_ROWS] for item in row.values())
    return flat and len(names) <= _MOST_COLUMNS


def _table_of(rows: list[dict[str, Any]], title: str) -> TableView:
    names = list(dict.fromkeys(name for row in rows[:MAX_ROWS] for name in row))
    return table(names, [[row.get(name) for name in names] for row in rows], title)


def _nodes(value: Any) -> list[TreeNode]:
    budget = [_MOST_NODES]
    return _children(value, 0, budget)


def _children(value: Any, depth: int, budget: list[int]) -> list[TreeNode]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    nodes = []
    for name, item in pairs:
        budget[0] -= 1
        if budget[0] < 0:
            nodes.append(TreeNode("…", notes=["the download contains the rest"]))
            break
        if isinstance(item, dict | list) and item and depth + 1 < MAX_DEPTH:
            nodes.append(TreeNode(str(name), children=_children(item, depth + 1, budget)))
        else:
            text = value_of(str(name), item).text
            nodes.append(TreeNode(str(name), code=(text if text is not None else "null")[:_LONG]))
    return nodes
