"""Finds where two ranks first differ, which ranks are alike, and whether they are stages of a pipeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from stepscope.viewer.ranks.queries import sequences
from stepscope.viewer.ranks.queries.sequences import Basis, RankItem, Whole, is_wait, sequence, wholes
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

Kind = Literal["differs", "ends", "order", "size", "group", "waits", "cut"]
_KEYED = ("graphs", "tensors")
_EVERYBODY = ("0", "default_pg")
"""Names of the process group that contains all ranks."""
_UNEVEN = "all_to_all"
"""Part of the names of collectives whose sizes may differ between ranks."""


@dataclass(frozen=True)
class Split:
    """The first difference of two sequences: an index into each, or its length if it ends there."""

    left: int
    right: int
    kind: Kind


class Comparer:
    """Comparer of the logs of a trace, which caches what it reads."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.complete: dict[int, bool | None] = dict(sql.rows(trace, "SELECT log, complete FROM logs"))
        self.wholes = wholes(trace)
        self._programs: dict[int, Hashable] | None = None
        self._wrappers: dict[int, Counter[str]] | None = None

    def programs(self) -> dict[int, Hashable]:
        """Return the first compiled frame of each log with a digest of its first Dynamo graph, without logs that have
        none where others have one."""
        if self._programs is None:
            graphs: dict[int, str] = dict(
                sql.rows(
                    self.trace,
                    "SELECT log, arg_min(digest, record) FROM rank_facts WHERE stage = 'dynamo_output_graph'"
                    " GROUP BY log",
                )
            )
            frames = sql.rows(self.trace, "SELECT log, arg_min(frame, compile) FROM compiles GROUP BY log")
            self._programs = {log: (frame, graphs.get(log)) for log, frame in frames if log in graphs or not graphs}
        return self._programs

    def groups(self, basis: Basis, logs: Sequence[int]) -> list[list[int]]:
        """Return the groups of logs that are alike, largest group first, ties by first log."""
        digests = self.wholes[basis]
        same: dict[Whole | None, list[int]] = {}
        for log in logs:
            same.setdefault(digests.get(log), []).append(log)
        first = {members[0]: members for members in same.values()}
        found = alike(list(first), lambda a, b: self.split(basis, a, b) is not None)
        merged = [sorted((log for one in group for log in first[one]), key=logs.index) for group in found]
        return sorted(merged, key=lambda group: -len(group))

    def split(self, basis: Basis, left: int, right: int) -> Split | None:
        """Return the first difference between two logs, or None if they are alike as far as both are known."""
        digests = self.wholes[basis]
        if digests.get(left) == digests.get(right):
            return None
        sides = sequence(self.trace, basis, left), sequence(self.trace, basis, right)
        if basis in _KEYED:
            return split_keyed(*sides)
        programs = self.programs()
        same_program = programs.get(left) == programs.get(right)
        if basis == "collectives":
            if same_program:
                return split_collectives(*sides, self._graphs_with_code(left), self._graphs_with_code(right))
            return split_shared_groups(*sides)
        if basis == "launched" and not same_program:
            return None
        found = split_strict(*sides)
        if found is not None and basis == "launched":
            return self._launched(found, left, right, *sides)
        return found

    def _launched(self, found: Split, left: int, right: int, a: Sequence[RankItem], b: Sequence[RankItem]) -> Split:
        """Classify a difference of launches as "cut" if it is only due to an incomplete log, else as "order"."""
        cut_left = found.left >= len(a) - 1 and not self.complete.get(left)
        cut_right = found.right >= len(b) - 1 and not self.complete.get(right)
        if not cut_left and not cut_right:
            return Split(found.left, found.right, "order")
        items = (at_index(a, found.left), at_index(b, found.right))
        ours, theirs, _ = sequences.opened(self.trace, "launched", left, right, *items) or ([], [], "")
        inside = split_strict(ours, theirs)
        ended = inside is None or (inside.left == len(ours) and cut_left) or (inside.right == len(theirs) and cut_right)
        return Split(found.left, found.right, "cut" if ended else "order")

    def _graphs_with_code(self, log: int) -> Counter[str]:
        if self._wrappers is None:
            self._wrappers = sequences.compiled_code(self.trace)
        return self._wrappers.get(log, Counter())


def at_index(items: Sequence[RankItem], index: int) -> RankItem | None:
    """Return the item at `index`, or None if the sequence is shorter."""
    return items[index] if index < len(items) else None


def split_strict(left: Sequence[RankItem], right: Sequence[RankItem]) -> Split | None:
    """Return the first index at which two sequences have different values or one ends; None if they are equal."""
    for i, (a, b) in enumerate(zip(left, right, strict=False)):
        if a.value != b.value:
            return Split(i, i, "differs")
    shorter = min(len(left), len(right))
    return None if len(left) == len(right) else Split(shorter, shorter, "ends")


def split_keyed(left: Sequence[RankItem], right: Sequence[RankItem]) -> Split | None:
    """Return the first place whose values differ; places that one side lacks are ignored as not logged."""
    places = {item.place: i for i, item in enumerate(right)}
    for i, item in enumerate(left):
        j = places.get(item.place)
        if j is not None and item.value != right[j].value:
            return Split(i, j, "differs")
    return None


def split_collectives(
    left: Sequence[RankItem], right: Sequence[RankItem], left_code: Counter[str], right_code: Counter[str]
) -> Split | None:
    """Return the first difference in order, size or process group within a graph that both sides compiled."""
    groups = GroupNames(left, right)
    ours, theirs = _by_place(left), _by_place(right)
    for place in sorted(
        {**ours, **theirs}, key=lambda name: min(side[name][0] for side in (ours, theirs) if name in side)
    ):
        i, a = ours.get(place, (len(left), []))
        j, b = theirs.get(place, (len(right), []))
        compile_id = (a or b)[0].compile_id or ""
        if not (a and b) and not 0 < left_code[compile_id] == right_code[compile_id]:
            continue  # a graph that one side has not compiled is a difference of compile ids
        found = _split_graph(a, b, groups)
        if found is not None:
            return Split(i + found.left, j + found.right, found.kind)
    return None


def _split_graph(a: Sequence[RankItem], b: Sequence[RankItem], groups: GroupNames) -> Split | None:
    for k, (x, y) in enumerate(zip(a, b, strict=False)):
        if x.value != y.value:
            return Split(k, k, "waits" if _same_without_waits(a, b) else "order")
        if x.group is not None and y.group is not None and not groups.same(x.group, y.group):
            return Split(k, k, "group")
        if x.detail is not None and y.detail is not None and x.detail != y.detail and not _may_be_uneven(x):
            return Split(k, k, "size")
    if len(a) != len(b):
        shorter = min(len(a), len(b))
        return Split(shorter, shorter, "waits" if _same_without_waits(a, b) else "order")
    return None


def _may_be_uneven(item: RankItem) -> bool:
    return is_wait(item) or _UNEVEN in item.value


def _same_without_waits(a: Sequence[RankItem], b: Sequence[RankItem]) -> bool:
    return [x.value for x in a if not is_wait(x)] == [y.value for y in b if not is_wait(y)]


def _by_place(items: Sequence[RankItem]) -> dict[str, tuple[int, list[RankItem]]]:
    """Return the index of the first item and all items of each place."""
    found: dict[str, tuple[int, list[RankItem]]] = {}
    for i, item in enumerate(items):
        found.setdefault(item.place, (i, []))[1].append(item)
    return found


class GroupNames:
    """The correspondence between the process groups of two logs.

    A name in both logs is the same group. Other groups may correspond one to one, as the tensor-parallel groups of
    two replicas do."""

    def __init__(self, left: Sequence[RankItem], right: Sequence[RankItem]) -> None:
        names = {item.group for item in left} & {item.group for item in right}
        self.shared = {name for name in names if name is not None}
        self._there: dict[str, str] = {}
        self._back: dict[str, str] = {}

    def same(self, left: str, right: str) -> bool:
        if left == right:
            return True
        if {left, right} & (self.shared | {*_EVERYBODY}):
            return False
        return self._there.setdefault(left, right) == right and self._back.setdefault(right, left) == left


def split_shared_groups(left: Sequence[RankItem], right: Sequence[RankItem]) -> Split | None:
    """Compare ranks with different programs only in the process groups that contain both."""
    shared = GroupNames(left, right).shared
    ours, theirs = ([(i, x) for i, x in enumerate(side) if x.group in shared] for side in (left, right))
    for (i, x), (j, y) in zip(ours, theirs, strict=False):
        if x.value != y.value:
            return Split(i, j, "order")
        if x.group != y.group:
            return Split(i, j, "group")
        if x.detail != y.detail and not _may_be_uneven(x):
            return Split(i, j, "size")
    if len(ours) == len(theirs):
        return None
    at = min(len(ours), len(theirs))
    return Split(
        ours[at][0] if at < len(ours) else len(left), theirs[at][0] if at < len(theirs) else len(right), "order"
    )


def alike(logs: Sequence[int], differ: Callable[[int, int], bool]) -> list[list[int]]:
    """Group the logs, adding each to the first group whose first log does not differ from it."""
    groups: list[list[int]] = []
    for log in logs:
        own = next((group for group in groups if not differ(group[0], log)), None)
        if own is None:
            groups.append([log])
        else:
            own.append(log)
    return groups


def are_stages(programs: Sequence[Hashable]) -> bool:
    """Return whether the ranks may be the stages of a pipeline: equally wide runs of ranks, possibly repeated."""
    count = len(programs)
    periods = [p for p in range(2, count + 1) if count % p == 0 and list(programs) == [*programs[:p]] * (count // p)]
    return any(_is_run_of_stages(programs[:period]) for period in periods)


def _is_run_of_stages(programs: Sequence[Hashable]) -> bool:
    runs: list[tuple[Hashable, int]] = []
    for program in programs:
        if runs and runs[-1][0] == program:
            runs[-1] = (program, runs[-1][1] + 1)
        else:
            runs.append((program, 1))
    width = runs[0][1]
    once = len({program for program, _ in runs}) == len(runs)
    return len(runs) > 1 and once and runs[-1][1] == width and all(length % width == 0 for _, length in runs)
