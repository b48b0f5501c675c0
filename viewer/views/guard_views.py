"""Views of the guards of a compile."""

from __future__ import annotations

from collections.abc import Mapping

from viewer.views.blocks import Block, Fact, FactsView, TextView, TreeView, Value
from viewer.views.guards import guard_tree, tree_nodes
from viewer.views.record import Kind, Record
from viewer.views.shape import Odd


def _tree(record: Record) -> list[Block]:
    tree = guard_tree(record.payload or "")
    if not tree.roots:
        raise Odd("it holds no tree")
    facts = [Fact("guards", Value(f"{tree.guards:,}"))]
    if tree.latency:
        facts.append(Fact("one check of all takes", Value(tree.latency)))
    blocks: list[Block] = [FactsView(facts), TreeView(tree_nodes(tree.roots))]
    return [*blocks, TextView("\n".join(tree.loose), "Beside the tree")] if tree.loose else blocks


EVENTS: Mapping[str, Kind] = {
    "dynamo_cpp_guards_str": Kind(
        "Guards",
        "The checks that run before each call of the compiled code: when one fails, the code does not fit and Dynamo"
        " looks for other code or compiles again.",
        _tree,
    ),
}
