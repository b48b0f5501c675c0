"""Views of symbolic shapes: symbols, guards on them, and results of draft export."""

from __future__ import annotations

from typing import Any

from stepscope.viewer.records.rows import (
    Block,
    Cell,
    Fact,
    FactsView,
    StackView,
    TreeNode,
    TreeView,
)
from stepscope.viewer.records.views.json_views import pairs
from stepscope.viewer.records.views.measures import NOT_SAID
from stepscope.viewer.records.views.record import LoggedRecord, Sibling
from stepscope.viewer.records.views.shape import as_dict, get_dict, get_list, integer, shown, text_or_none
from stepscope.viewer.records.views.stacks import stack_view

_DEEPEST = 40
_MOST_NODES = 1_000
_MOST_PAIRS = 500
_NAMES = {
    "expr": "expression",
    "unhinted_expr": "without hints",
    "val": "value now",
    "vr": "range",
    "op": "operator",
}


def facts(record: LoggedRecord, names: tuple[str, ...]) -> FactsView:
    metadata = as_dict(record.metadata)
    return FactsView([Fact(_NAMES.get(name, name), _value(metadata.get(name))) for name in names])


def _value(item: Any) -> Cell:
    if item is None:
        return Cell(None, NOT_SAID)
    return Cell(", ".join(map(shown, item)) if isinstance(item, list) else shown(item), mono=True)


def stacks(record: LoggedRecord) -> list[StackView]:
    """Return the user's stack, and PyTorch's if it differs."""
    metadata, strings = as_dict(record.metadata), record.around.strings
    user = stack_view(metadata.get("user_stack"), strings, "Program lines")
    framework = stack_view(metadata.get("stack"), strings, "Stack in PyTorch")
    same = user is not None and framework is not None and user.frames == framework.frames
    return [stack for stack in (user, None if same else framework) if stack is not None]


def symbol(record: LoggedRecord) -> list[Block]:
    return [facts(record, ("symbol", "val", "vr", "source")), *stacks(record)]


def unbacked_symbol(record: LoggedRecord) -> list[Block]:
    return [facts(record, ("symbol", "vr")), *stacks(record)]


def specialization(record: LoggedRecord) -> list[Block]:
    return [facts(record, ("symbol", "sources", "value", "reason")), *stacks(record)]


def guard_fast(record: LoggedRecord) -> list[Block]:
    return [facts(record, ("expr",)), *stacks(record)]


def guard(record: LoggedRecord) -> list[Block]:
    return [facts(record, ("expr", "prefix")), *_provenance(record, "expr_node_id")]


def propagated(record: LoggedRecord) -> list[Block]:
    return [facts(record, ("expr", "result")), *_provenance(record, "expr_node_id")]


def data_dependent(record: LoggedRecord) -> list[Block]:
    return [facts(record, ("expr", "unhinted_expr")), *_provenance(record, "expr_id")]


def fake_kernel(record: LoggedRecord) -> list[Block]:
    names = ("op", "reason") if record.event == "mismatched_fake_kernel" else ("op",)
    return [facts(record, names), *stacks(record)]


def expression(record: LoggedRecord) -> list[Block]:
    return [facts(record, ("method", "arguments", "result")), *_provenance(record, "result_id")]


def _provenance(record: LoggedRecord, node: str) -> list[Block]:
    """Show how an expression was computed, the sources of its symbols, the frame's variables, and the stacks."""
    metadata = as_dict(record.metadata)
    blocks: list[Block] = []
    number = integer(metadata.get(node))
    made = expression_tree(number, record.around.siblings) if number is not None else None
    if made is not None:
        blocks.append(TreeView([made], "How the expression was made"))
    sources = get_dict(metadata, "symbol_to_sources")
    held = get_dict(metadata, "frame_locals")
    sources = {**get_dict(held, "symbols"), **sources}
    if sources:
        blocks.append(pairs(("symbol", "comes from"), sources, _value, "Symbols", _MOST_PAIRS))
    if get_dict(held, "locals"):
        names = ("variable", "value")
        blocks.append(pairs(names, get_dict(held, "locals"), _value, "Variables of the frame", _MOST_PAIRS))
    return [*blocks, *stacks(record)]


def expression_tree(number: int, siblings: Any) -> TreeNode | None:
    """Return the tree of an expression and its arguments, or None if no record describes it."""
    made: dict[int, Sibling] = {}
    for sibling in siblings:
        if isinstance(sibling.metadata, dict):
            key = integer(sibling.metadata.get("result_id" if sibling.event == "expression_created" else "node_id"))
            if key is not None:
                made[key] = sibling
    return _tree(number, made, 0, [_MOST_NODES]) if number in made else None


def _tree(number: int, made: dict[int, Sibling], depth: int, budget: list[int]) -> TreeNode:
    sibling = made[number]
    metadata = sibling.metadata
    budget[0] -= 1
    href = f"/records/{sibling.record}"
    if sibling.event != "expression_created":
        return TreeNode(shown(metadata.get("symbol")), "unbacked symbol", notes=[_place(metadata)], href=href)
    known = [item for item in get_list(metadata, "argument_ids") if integer(item) in made and item != number]
    children = []
    if depth < _DEEPEST:
        for item in known:
            if budget[0] <= 0:
                break
            children.append(_tree(item, made, depth + 1, budget))
    return TreeNode(
        shown(metadata.get("result")),
        shown(metadata.get("method")),
        notes=[note for note in (_place(metadata), _plain_arguments(metadata)) if note],
        href=href,
        children=children,
    )


def _place(metadata: dict[str, Any]) -> str:
    stack = metadata.get("user_stack")
    last = stack[-1] if isinstance(stack, list) and stack and isinstance(stack[-1], dict) else {}
    return text_or_none(last.get("loc")) or ""


def _plain_arguments(metadata: dict[str, Any]) -> str:
    arguments = metadata.get("arguments")
    return f"of {', '.join(map(shown, arguments))}" if isinstance(arguments, list) and arguments else ""
