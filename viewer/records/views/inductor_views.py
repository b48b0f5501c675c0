"""Views of Inductor's records: kernels, collectives, estimates, and the origins of generated code."""

from __future__ import annotations

import re
from typing import Any

from stepscope.viewer.records.rows import (
    MAX_ROWS,
    Block,
    Cell,
    CodeView,
    Column,
    Fact,
    FactsView,
    NoteView,
    StackView,
    TableView,
    TextView,
)
from stepscope.viewer.records.views.code_views import graph_sources, payload_of
from stepscope.viewer.records.views.json_views import json_blocks, pairs, table
from stepscope.viewer.records.views.measures import NOT_SAID, value_of
from stepscope.viewer.records.views.record import LoggedRecord, pretty_json
from stepscope.viewer.records.views.shape import Odd, as_dict, as_list, get_list, parsed, shown
from stepscope.viewer.text.tracebacks import traceback_frames

_SIDES = {
    "preToPost": ("node before grad passes", "nodes after grad passes"),
    "postToPre": ("node after grad passes", "nodes before grad passes"),
    "cppCodeToPost": ("kernel of the generated code", "nodes after grad passes"),
    "postToCppCode": ("node after grad passes", "kernels of the generated code"),
    "pyCodeToPost": ("kernel of the generated code", "nodes after grad passes"),
    "postToPyCode": ("node after grad passes", "kernels of the generated code"),
}
_GRAPH = re.compile(r"^ *(class |def forward)", re.MULTILINE)


def kernels(record: LoggedRecord) -> list[Block]:
    """Show Triton kernels and their fields, one per row."""
    value = as_dict(parsed(record.payload))
    rows = [{"kernel": name, **(item if isinstance(item, dict) else {"": item})} for name, item in value.items()]
    names = list(dict.fromkeys(name for row in rows for name in row))[:20] or ["kernel"]
    return [table(names, [[row.get(name) for name in names] for row in rows])]


def schedule(record: LoggedRecord) -> list[Block]:
    """Show collectives in the order in which the generated code starts and awaits them."""
    value = parsed(record.payload)
    rows = [[number, item] for number, item in enumerate(as_list(value), 1)]
    return [FactsView([Fact("operators", Cell(f"{len(rows):,}"))]), table(["order", "operator"], rows)]


def runtime_meta(record: LoggedRecord) -> list[Block]:
    """Show the estimated time and the outputs of each scheduler node."""
    operators = get_list(as_dict(parsed(record.payload)), "ops")
    rows = []
    total = 0.0
    for number, item in enumerate(operators[:MAX_ROWS], 1):
        operator = as_dict(item)
        estimate = operator.get("estimated_runtime_ns")
        total += estimate if isinstance(estimate, int | float) and abs(estimate) < 1e15 else 0
        outputs = [_tensor(output) for output in get_list(operator, "outputs")]
        rows.append(
            [
                Cell(str(number)),
                Cell(shown(operator.get("name")), mono=True),
                Cell(shown(operator.get("type"))),
                value_of("estimated_runtime_ns", estimate),
                Cell("; ".join(outputs) or None, NOT_SAID, mono=True),
            ]
        )
    columns = [Column("order", True), Column("operator"), Column("type"), Column("estimate", True), Column("outputs")]
    facts = FactsView(
        [
            Fact("operators", Cell(f"{len(operators):,}")),
            Fact("estimates together", value_of("total_ns", round(total))),
        ]
    )
    note = NoteView("Times are Inductor's estimates; nothing of this was measured.")
    return [facts, note, TableView(columns, rows, "", max(0, len(operators) - MAX_ROWS))]


def _tensor(output: Any) -> str:
    value = as_dict(output)
    return f"{shown(value.get('dtype'))}{shown(value.get('shape'))} stride {shown(value.get('stride'))}"


def execution(record: LoggedRecord) -> list[Block]:
    """Show the order in which compiled graphs ran."""
    value = as_dict(parsed(record.payload))
    order = value.get("graph_execution_order")
    return json_blocks(order if isinstance(order, list) else value)


def node_mappings(record: LoggedRecord) -> list[Block]:
    """Show the nodes of one stage and the corresponding nodes of another."""
    value = as_dict(parsed(record.payload))
    mappings = {name: item for name, item in value.items() if isinstance(item, dict)}
    if not mappings:
        return [_mapping(value, ("name", "nodes"), "")]
    rest = {name: item for name, item in value.items() if name not in mappings}
    blocks: list[Block] = [_mapping(item, _SIDES.get(name, ("from", "to")), name) for name, item in mappings.items()]
    return [*blocks, *(json_blocks(rest) if rest else [])]


def _mapping(value: dict[str, Any], columns: tuple[str, str], title: str) -> TableView:
    return pairs(columns, value, lambda item: Cell(_names(item) or None, "nothing", mono=True), title, MAX_ROWS)


def _names(item: Any) -> str:
    """Return names such as ``permute, addmm``; older versions have them in lists of objects."""
    if isinstance(item, list):
        names = [shown(part.get("name", "")) if isinstance(part, dict) else shown(part) for part in item[:200]]
        return ", ".join(dict.fromkeys(name for name in names if name))
    return shown(item)


def kernel_stacks(record: LoggedRecord) -> list[Block]:
    """Show kernels with the stacks of the program lines that they came from."""
    value = as_dict(parsed(record.payload))
    blocks: list[Block] = []
    for kernel, item in list(value.items())[:200]:
        stacks = (
            get_list(item, "stack_traces") if isinstance(item, dict) else item if isinstance(item, list) else [item]
        )
        for number, stack in enumerate(dict.fromkeys(shown(stack) for stack in stacks)):
            frames = traceback_frames(stack)
            title = kernel if not number else ""
            blocks.append(StackView(frames, title) if frames else TextView(stack, title))
        if not stacks:
            blocks.append(FactsView([Fact(kernel, Cell(None, "no stack was kept"))]))
        if isinstance(item, dict):
            rest = {name: part for name, part in item.items() if name != "stack_traces" and part not in (None, [], {})}
            blocks += json_blocks(rest) if rest else []
    if not blocks:
        raise Odd("it names no kernel")
    left = len(value) - 200
    return [*blocks, NoteView(f"{left:,} more kernels are in the download.")] if left > 0 else blocks


def code_or_prose(record: LoggedRecord) -> list[Block]:
    """Show the text as a graph, as JSON or as prose, whichever it is."""
    text = payload_of(record)
    if _GRAPH.search(text[:4_000]):
        return [CodeView(text, "python", sources=graph_sources(text))]
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json_blocks(parsed(text))
        except Odd:
            return buckets(record)
    return [TextView(text)]


def buckets(record: LoggedRecord) -> list[Block]:
    """Show the buckets in a list of lists of nodes, which is in Python's notation."""
    parts = payload_of(record).strip().strip("[]").split("], [")
    value = [part.strip("[] ").split(", ") for part in parts if part.strip("[] ")]
    rows = [[number, len(item), ", ".join(item)] for number, item in enumerate(value, 1)]
    return [table(["bucket", "nodes", "names"], rows)]


def comma_table(record: LoggedRecord) -> list[Block]:
    """Show comma-separated estimates, whose first column may contain unquoted commas."""
    notes = [line.removeprefix("# ") for line in payload_of(record).split("\n") if line.startswith("#")]
    lines = [line for line in payload_of(record).split("\n") if line.strip() and not line.startswith("#")]
    names = lines[0].split(",") if lines else []
    rows = [line.rsplit(",", len(names) - 1) for line in lines[1:]]
    if len(names) < 2 or not all(len(row) == len(names) for row in rows):
        return [TextView(payload_of(record))]
    cells = [[Cell(cell.strip(), mono=not place) for place, cell in enumerate(row)] for row in rows[:MAX_ROWS]]
    columns = [Column(name.strip(), bool(place)) for place, name in enumerate(names)]
    blocks: list[Block] = [NoteView(note) for note in notes[:20]]
    return [*blocks, TableView(columns, cells, "", max(0, len(rows) - MAX_ROWS))]


def config(record: LoggedRecord) -> list[Block]:
    text = payload_of(record)
    return [CodeView(pretty_json(text), "json")]
