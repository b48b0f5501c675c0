"""Where compiles were called from: their stacks as one tree whose common beginnings are shown once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from stepscope.viewer.compiles.rows import CompileRow
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

CompileKey = tuple[int, str]
"""Log and compile id."""
MOST_CHIPS = 24
DEEPEST = 32
"""Levels that a page nests; what branches further down stands on the last of them."""


@dataclass(frozen=True)
class TrieNode:
    """Frames that follow each other without a branch, and what was compiled at the last of them."""

    depth: int
    frames: list[SourceLine]
    """Outermost first."""
    compiles: list[CompileRow]
    """In the order in which they began, at most `MOST_CHIPS`."""
    more: int
    """Compiles at the last frame that `compiles` leaves out."""
    below: int
    """Compiles at this node and under it."""


@dataclass(frozen=True)
class StackTrie:
    nodes: list[TrieNode]
    """Each node before what is under it."""
    unknown: list[CompileRow]
    """Compiles whose stack the log does not hold, at most `MOST_CHIPS`."""
    unknown_more: int
    stacks: int
    """Distinct stacks; a page shows those from `offset` on, at most `limit`."""
    offset: int
    limit: int


@dataclass
class _Branch:
    frame: SourceLine | None = None
    under: dict[SourceLine, _Branch] = field(default_factory=dict)
    compiles: list[CompileRow] = field(default_factory=list)
    below: int = 0


def stack_trie(trace: Trace, compiles: Sequence[CompileRow], offset: int = 0, limit: int = 200) -> StackTrie:
    """The tree of `compiles`, of `limit` distinct stacks from `offset` on. Stacks that are alike are read once."""
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
    """Without recursion: a stack may be deeper than Python's own."""
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
