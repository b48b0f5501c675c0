"""Aligns two ranks in one aspect around their first difference."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import islice, zip_longest
from typing import Literal, NamedTuple

from stepscope.viewer.graphs.rows import SourceLine, commented_lines
from stepscope.viewer.ingest.torch_trace.rank_facts import comparable_graph
from stepscope.viewer.ranks.queries import sequences
from stepscope.viewer.ranks.queries.compare import Comparer, Kind, Split, at_index, split_collectives, split_strict
from stepscope.viewer.ranks.queries.ranks import SLOW_BY_NS, SLOW_FACTOR
from stepscope.viewer.ranks.queries.sequences import BASES, Aspect, Basis, RankItem, sequence
from stepscope.viewer.store.trace import Trace

RowState = Literal["equal", "differs", "left", "right"]
WINDOW = 400
"""Maximum number of items per side to align, because the cost of the alignment is quadratic."""
CONTEXT = 20
MOST_LINES = 3000
LINES_AROUND = 4
MOST_CHARS = 2_000_000
Pair = tuple[int | None, int | None]


@dataclass(frozen=True)
class AlignedRow:
    left_index: int | None
    """Index in the sequence, counted from 0; None if this side has no item here."""
    right_index: int | None
    left: RankItem | None
    right: RankItem | None
    state: RowState
    is_first: bool = False
    """Whether this is the first difference."""


@dataclass(frozen=True)
class DiffLine:
    left_line: int | None
    right_line: int | None
    left: str | None
    right: str | None
    state: RowState | Literal["gap"]


_OPERATION = re.compile(r'^\s*(\w+)(?:: "[^"]*")? = (.+?)(?:;|$)')
_NAME = re.compile(r"(?<!\.)\b[A-Za-z_]\w*")
_OF_MODULE = re.compile(r"_(?:parameters|buffers)_")
"""Part of the name of a parameter or buffer, which an operation uses in all graphs."""


@dataclass(frozen=True)
class GraphDiff:
    """The changed lines of a traced graph on both sides, with context."""

    place: str
    left_record: int
    right_record: int
    lines: list[DiffLine]
    is_cut: bool


@dataclass(frozen=True)
class RankDifference:
    aspect: Aspect
    basis: Basis
    left: int
    """Log on the left side."""
    right: int
    split: Split | None
    """First difference; None if the sides are alike."""
    kind: Kind | Literal["slow"] | None
    left_items: int
    right_items: int
    rows: list[AlignedRow]
    before: int
    """Number of items before the first row, which are alike on both sides."""
    left_after: int
    """Number of items on the left side after the last row."""
    right_after: int
    inside: str | None
    """Part of the log that the sequences come from, such as ``step 3``; None for the whole log."""
    operations: list[AlignedRow] = field(default_factory=list)
    """Operations of the first graph whose tensors differ."""
    graph: GraphDiff | None = None


def rank_difference(trace: Trace, aspect: Aspect, left: int, right: int) -> RankDifference:
    """Compare logs `left` and `right` in `aspect`."""
    if aspect == "times":
        return _times(trace, left, right)
    comparer, basis, split = Comparer(trace), BASES[aspect][0], None
    for name in BASES[aspect]:
        split = comparer.split(name, left, right)
        if split is not None:
            basis = name
            break
    ours, theirs = sequence(trace, basis, left), sequence(trace, basis, right)
    kind, inside = split.kind if split else None, None
    a, b = at_index(ours, split.left if split else 0), at_index(theirs, split.right if split else 0)
    within = sequences.opened(trace, basis, left, right, a, b) if split is not None else None
    if within is not None:
        ours, theirs, inside = within
        split = split_strict(ours, theirs)
    rows, before, left_after, right_after = _aligned(basis, ours, theirs, split)
    found = RankDifference(
        aspect, basis, left, right, split, kind, len(ours), len(theirs), rows, before, left_after, right_after, inside
    )
    if split is None or a is None or b is None or a.record is None or b.record is None:
        return found
    if basis == "graphs":
        return replace(found, graph=graph_diff(trace, a.place, a.record, b.record))
    if basis == "tensors":
        return replace(found, operations=_operations(trace, a.record, b.record))
    return found


def _operations(trace: Trace, left: int, right: int) -> list[AlignedRow]:
    ours, theirs = (sequences.operations(trace, record) for record in (left, right))
    return _aligned("tensors", ours, theirs, split_strict(ours, theirs))[0]


def _times(trace: Trace, left: int, right: int) -> RankDifference:
    """Align all compiles of both sides and mark the first that took one side much longer."""
    ours, theirs = sequence(trace, "compile_ids", left), sequence(trace, "compile_ids", right)
    places = {item.place: j for j, item in enumerate(theirs)}
    late = [(i, places[a.place]) for i, a in enumerate(ours) if a.place in places and _late(a, theirs[places[a.place]])]
    split = Split(*late[0], "differs") if late else None
    rows, before, left_after, right_after = _aligned("times", ours, theirs, split)
    return RankDifference(
        "times", "compile_ids", left, right, split, "slow" if late else None, len(ours), len(theirs), rows, before,
        left_after, right_after, None,
    )  # fmt: skip


def _late(a: RankItem, b: RankItem) -> bool:
    if a.duration_ns is None or b.duration_ns is None:
        return False
    short, long = sorted((a.duration_ns, b.duration_ns))
    return long >= SLOW_FACTOR * short and long - short >= SLOW_BY_NS


def _aligned(
    basis: Basis | Literal["times"], left: Sequence[RankItem], right: Sequence[RankItem], split: Split | None
) -> tuple[list[AlignedRow], int, int, int]:
    """Return a window of rows around `split`, and the numbers of items before it and after it on each side."""
    place_and_value = basis in ("collectives", "launched")
    ours, theirs = ([(x.place, x.value if place_and_value else "") for x in side] for side in (left, right))
    start = 0
    if split is not None and max(len(left), len(right)) > WINDOW and ours[: split.left] == theirs[: split.right]:
        start = max(0, split.left - CONTEXT)
    ends = min(len(left), start + WINDOW), min(len(right), start + WINDOW)
    pairs = align(ours[start : ends[0]], theirs[start : ends[1]])
    rows, marked = [], False
    for i, j in pairs:
        i, j = (None if at is None else at + start for at in (i, j))
        a, b = (None if i is None else left[i]), (None if j is None else right[j])
        is_first = split is not None and not marked and (i == split.left or j == split.right)
        marked |= is_first
        rows.append(AlignedRow(i, j, a, b, _state(basis, a, b), is_first))
    return rows, start, len(left) - ends[0], len(right) - ends[1]


def _state(basis: Basis | Literal["times"], a: RankItem | None, b: RankItem | None) -> RowState:
    if a is None or b is None:
        return "right" if a is None else "left"
    if basis == "times":
        return "differs" if _late(a, b) else "equal"
    return "equal" if a.value == b.value and _same(basis, a, b) else "differs"


def _same(basis: Basis | Literal["times"], a: RankItem, b: RankItem) -> bool:
    if basis != "collectives":
        return True
    one, other = replace(a, place=""), replace(b, place="")
    return split_collectives([one], [other], Counter(), Counter()) is None


def align(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[Pair]:
    """Return the pairs of aligned indices; items that differ are paired in order."""
    pairs: list[Pair] = []
    for _, i, i_end, j, j_end in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        pairs += zip_longest(range(i, i_end), range(j, j_end))
    return pairs


def graph_diff(trace: Trace, place: str, left: int, right: int) -> GraphDiff:
    """Compare the graphs of two records as text, without the parts in which ranks may legitimately differ."""
    ours, theirs = (_graph_lines(trace, record) for record in (left, right))
    is_cut = max(len(ours), len(theirs)) > MOST_LINES
    same = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), 0) if is_cut else 0
    start = max(0, same - LINES_AROUND)
    a, b = ours[start : start + MOST_LINES], theirs[start : start + MOST_LINES]
    lines = [_diff_line(a, b, i, j, start) for i, j in align(a, b)]
    return GraphDiff(place, left, right, _around_changes(lines), is_cut)


class Operation(NamedTuple):
    """An operation of a traced graph."""

    text: str
    kind: str
    """The text without the names of computed values, which depend on what was traced before."""
    source: SourceLine | None
    """Line of the program that it comes from."""


def first_operations(trace: Trace, diff: GraphDiff) -> tuple[Operation | None, Operation | None]:
    """Return the first operations in which two graphs differ; None for the graph that has no such operation there, and
    for both if the graphs differ in something else."""
    ours, theirs = (_graph_operations(trace, record) for record in (diff.left_record, diff.right_record))
    for left, right in zip_longest(ours, theirs):
        if left is None or right is None or left.kind != right.kind:
            a, b = ([one for one in (at, *islice(rest, WINDOW)) if one] for at, rest in ((left, ours), (right, theirs)))
            i, j = align([one.kind for one in a], [one.kind for one in b])[0]
            return None if i is None else a[i], None if j is None else b[j]
    return None, None


def _graph_operations(trace: Trace, record: int) -> Iterator[Operation]:
    names: set[str] = set()
    for line, source in commented_lines(trace.payload(record).decode("utf-8", "replace")):
        operation = _OPERATION.match(line)
        if operation is None:
            continue
        if not operation[2].isidentifier():  # else it is an input
            yield Operation(operation[2], _without(names, operation[2]), source)
        if not _OF_MODULE.search(operation[1]):
            names.add(operation[1])


def _without(names: set[str], text: str) -> str:
    comparable = comparable_graph(text.encode()).decode()
    return _NAME.sub(lambda name: "_" if name[0] in names else name[0], comparable)


def _graph_lines(trace: Trace, record: int) -> list[str]:
    return comparable_graph(trace.payload(record)[:MOST_CHARS]).decode("utf-8", "replace").splitlines()


def _diff_line(a: Sequence[str], b: Sequence[str], i: int | None, j: int | None, start: int) -> DiffLine:
    left, right = (None if i is None else a[i]), (None if j is None else b[j])
    state: RowState = "equal" if left == right else "left" if right is None else "right" if left is None else "differs"
    numbers = [None if at is None else at + start + 1 for at in (i, j)]
    return DiffLine(numbers[0], numbers[1], left, right, state)


def _around_changes(lines: Sequence[DiffLine]) -> list[DiffLine]:
    changed = [i for i, line in enumerate(lines) if line.state != "equal"]
    shown = {k for i in changed for k in range(i - LINES_AROUND, i + LINES_AROUND + 1) if 0 <= k < len(lines)}
    found: list[DiffLine] = []
    for k in sorted(shown):
        if k - 1 not in shown:
            found.append(DiffLine(None, None, None, None, "gap"))
        found.append(lines[k])
    return found[1:] if 0 in shown else found
