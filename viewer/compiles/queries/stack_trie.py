"""Builds a tree of the stacks from which compiles were called, merging their common outer frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from stepscope.viewer.compiles.rows import CompileRow
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

CompileKey = tuple[int, str]
"""(log, compile id)"""
MOST_CHIPS = 24
DEEPEST = 32
"""Maximum nesting on a page; deeper branches are placed on this level."""


@dataclass(frozen=True)
class TrieNode:
    """Consecutive frames without a branch, and the compiles at the last of them."""

    depth: int
    frames: list[SourceLine]
    """Frames, outermost first."""
    compiles: list[CompileRow]
    """Compiles at the last frame in the order in which they started, at most `MOST_CHIPS`."""
    more: int
    """Number of compiles at the last frame that `compiles` leaves out."""
    below: int
    """Number of compiles at this node and below it."""


@dataclass(frozen=True)
class StackTrie:
    nodes: list[TrieNode]
    """Nodes in pre-order."""
    unknown: list[CompileRow]
    """Compiles without a stack in the log, at most `MOST_CHIPS`."""
    unknown_more: int
    stacks: int
    """Number of distinct stacks; a page shows at most `limit`, starting at `offset`."""
    offset: int
    limit: int


@dataclass
class _Branch:
    frame: SourceLine | None = None
    under: dict[SourceLine, _Branch] = field(default_factory=dict)
    compiles: list[CompileRow] = field(default_factory=list)
    below: int = 0


def stack_trie(trace: Trace, compiles: Sequence[CompileRow], offset: int = 0, limit: int = 200) -> StackTrie:
    """Return the tree of at most `limit` distinct stacks of `compiles`, starting at `offset`."""
    rows = {(row.log, row.compile_id): row for row in compiles}
    unknown: list[CompileRow] = []
    stacks: list[tuple[str, list[CompileRow]]] = []
    for stack, members in _stacks(trace, rows):
        if stack in (None, "[]"):
            unknown += members
        else:
            assert stack is not None
            stacks.append((stack, members))
    place = {key: position for position, key in enumerate(rows)}
    stacks.sort(key=lambda pair: place[pair[1][0].log, pair[1][0].compile_id])
    root = _Branch()
    for stack, members in stacks[offset : offset + limit]:
        _insert(root, [SourceLine(**frame) for frame in sql.json_value(stack)], members)
    nodes: list[TrieNode] = []
    _flatten(root, nodes)
    return StackTrie(
        nodes, unknown[:MOST_CHIPS], max(0, len(unknown) - MOST_CHIPS), len(stacks), offset, limit
    )  # fmt: skip


def _stacks(trace: Trace, rows: Mapping[CompileKey, CompileRow]) -> Iterable[tuple[str | None, list[CompileRow]]]:
    found = sql.rows(trace, "SELECT stack, list(log ORDER BY compile), list(compile_id ORDER BY compile)"
                            " FROM compiles GROUP BY stack")  # fmt: skip
    for stack, logs, compile_ids in found:
        members = [rows[key] for key in zip(logs, compile_ids, strict=True) if key in rows]
        if members:
            yield stack, members


def _insert(root: _Branch, frames: Iterable[SourceLine], members: list[CompileRow]) -> None:
    branch = root
    for frame in frames:
        branch.below += len(members)
        branch = branch.under.setdefault(frame, _Branch(frame))
    branch.below += len(members)
    branch.compiles += members


def _flatten(root: _Branch, nodes: list[TrieNode]) -> None:
    """Append the nodes below `root` in pre-order, without recursion because stacks may exceed Python's limit."""
    waiting = [(branch, 0) for branch in reversed(root.under.values())]
    while waiting:
        branch, depth = waiting.pop()
        frames: list[SourceLine] = []
        while True:
            assert branch.frame is not None
            frames.append(branch.frame)
            if branch.compiles or len(branch.under) != 1:
                break
            (branch,) = branch.under.values()
        shown, more = branch.compiles[:MOST_CHIPS], max(0, len(branch.compiles) - MOST_CHIPS)
        nodes.append(TrieNode(depth, frames, shown, more, branch.below))
        waiting += [(under, min(depth + 1, DEEPEST)) for under in reversed(branch.under.values())]
