"""Views of the guards of a compile."""

from __future__ import annotations

from stepscope.viewer.records.rows import (
    MAX_ROWS,
    Block,
    Cell,
    Column,
    Fact,
    FactsView,
    NoteView,
    TableView,
    TextView,
    TreeNode,
    TreeView,
)
from stepscope.viewer.records.views.record import LoggedRecord
from stepscope.viewer.records.views.shape import Odd, as_dict, as_list, parsed, shown
from stepscope.viewer.records.views.stacks import frames
from stepscope.viewer.text.guard_tree import GuardNode, guard_tree, split_guard


def tree(record: LoggedRecord) -> list[Block]:
    tree = guard_tree(record.payload or "")
    if not tree.roots:
        raise Odd("it contains no tree")
    facts = [Fact("guards", Cell(f"{tree.guards:,}"))]
    if tree.latency:
        facts.append(Fact("time to check all", Cell(tree.latency)))
    blocks: list[Block] = [FactsView(facts), TreeView(_tree_nodes(tree.roots))]
    return [*blocks, TextView("\n".join(tree.loose), "Outside the tree")] if tree.loose else blocks


def _tree_nodes(nodes: list[GuardNode]) -> list[TreeNode]:
    """Convert the nodes of a guard tree to nodes of a view."""
    return [
        TreeNode(
            label=node.source or node.name if node.kind != "guard" else "",
            tag=node.name if node.kind == "guard" else node.type or (node.name if node.source else ""),
            code=node.code,
            notes=[note for note in (node.user_code, node.place, node.accessed_by) if note],
            children=_tree_nodes(node.children),
        )
        for node in nodes
    ]


def guard_list(record: LoggedRecord) -> list[Block]:
    """Show each guard with the program line that required it."""
    guards = [as_dict(item) for item in as_list(parsed(record.payload))]
    if not guards:
        return [NoteView("This record lists no guards; the guard tree contains them.")]
    rows = []
    for guard in guards[:MAX_ROWS]:
        code = split_guard(shown(guard.get("code")).strip())
        stack = frames(guard.get("user_stack"), record.around.strings)
        place = f"{stack[-1].file}:{stack[-1].line} in {stack[-1].function}" if stack else code.place
        line = stack[-1].code if stack else code.user_code
        no_place = "PyTorch created it"
        rows.append(
            [Cell(code.code, mono=True), Cell(line or None, no_place, mono=True), Cell(place or None, no_place)]
        )
    facts = FactsView([Fact("guards", Cell(f"{len(guards):,}"))])
    columns = [Column("guard"), Column("program line"), Column("at")]
    return [facts, TableView(columns, rows, "", len(guards) - len(rows))]
