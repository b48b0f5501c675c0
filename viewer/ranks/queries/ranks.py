"""Compares the ranks of a trace: groups of equal ranks, first differences, and slow compiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal
from urllib.parse import urlencode

from stepscope.viewer.overview.queries.runs import list_runs
from stepscope.viewer.ranks.queries.compare import Comparer, Kind, Split, are_stages, at_index, split_strict
from stepscope.viewer.ranks.queries.logs import RankRow, rank_rows
from stepscope.viewer.ranks.queries.sequences import BASES, Aspect, Basis, RankItem, opened, sequence
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import format_ns

State = Literal["alike", "differ", "stages", "nothing"]
SLOW_FACTOR = 2
SLOW_BY_NS = 1_000_000_000
MOST_SLOW = 200
MOST_NAMED = 12
_PHASES = "SELECT compile_id, list(DISTINCT phase) FROM graphs WHERE log = ? AND compile_id IS NOT NULL GROUP BY ALL"
_TRAINS = """
    SELECT (SELECT count(*) FROM steps WHERE log = ? AND kind = 'train')
         + (SELECT count(*) FROM graphs WHERE log = ? AND phase = 'forward')
"""
_IN_ORDER: tuple[Aspect, ...] = ("compile_ids", "graphs", "caches", "tensors", "collectives", "times")
TITLES: dict[Aspect, str] = {
    "collectives": "Collectives",
    "compile_ids": "Compiles",
    "graphs": "Graphs",
    "tensors": "Tensor metadata",
    "caches": "Cache decisions",
    "times": "Time per compile",
}


@dataclass(frozen=True)
class RankGroup:
    """A group of ranks that are alike."""

    logs: list[int]
    name: str
    """Name such as ``ranks 0, 2``."""
    items: int
    """Number of items in the sequence of the first log."""


@dataclass(frozen=True)
class FirstDifference:
    basis: Basis | None
    """None for a difference in times."""
    left: int
    """Log on the left side."""
    right: int
    left_rank: int | None
    right_rank: int | None
    left_index: int
    """Index of the first item that differs, or the number of items if the sequence has ended."""
    right_index: int
    left_items: int
    right_items: int
    left_text: str | None
    """Item on the left side; None if its sequence has ended."""
    right_text: str | None
    compile_id: str | None
    kind: Kind | Literal["slow"]
    text: str
    """Description of the place and of the items on both sides."""
    page: str


@dataclass(frozen=True)
class AspectRow:
    aspect: Aspect
    title: str
    state: State
    groups: list[RankGroup]
    first: FirstDifference | None
    only_evaluates: bool = False
    """Whether ranks that train differ only in compiles of inference graphs, as for an evaluation on one rank."""


@dataclass(frozen=True)
class SlowCompile:
    """The times that ranks took for the same compile."""

    compile_id: str
    frame: str | None
    ranks: int
    fastest_log: int
    fastest_rank: int | None
    fastest_ns: int
    slowest_log: int
    slowest_rank: int | None
    slowest_ns: int
    median_ns: int
    is_slow: bool


@dataclass(frozen=True)
class Ranks:
    rows: list[RankRow]
    compared: list[int]
    """Compared logs, by rank."""
    world_size: int | None
    missing: list[int]
    """Ranks without a log."""
    aspects: list[AspectRow]
    first: AspectRow | None
    """Aspect in which the ranks differ first; None if they do not differ."""
    slow: list[SlowCompile]
    slow_left: int
    """Number of compiles that are not listed because their differences are smaller."""


def ranks(trace: Trace) -> Ranks:
    """Return the comparison of all ranks, computed once per open trace."""
    return trace.once(_ranks)


def _ranks(trace: Trace) -> Ranks:
    rows = rank_rows(trace)
    compared = sorted((row for row in rows if row.compared), key=lambda row: row.rank or 0)
    logs = [row.log for row in compared]
    names = {row.log: row.rank for row in rows}
    world = max((run.world_size for run in list_runs(trace) if run.world_size), default=None)
    slow = slow_compiles(trace, logs, names)
    aspects = _Aspects(trace, logs, names).rows(slow) if len(logs) > 1 else []
    return Ranks(
        rows, logs, world, _missing(compared, world), aspects, _earliest(trace, aspects), slow[:MOST_SLOW],
        max(0, len(slow) - MOST_SLOW),
    )  # fmt: skip


def _earliest(trace: Trace, aspects: Sequence[AspectRow]) -> AspectRow | None:
    """Return the aspect whose difference is in the earliest compile, and within a compile the earliest aspect."""
    found = []
    for row in aspects:
        if row.first is not None:
            order = [item.compile_id for item in sequence(trace, "compile_ids", row.first.left)]
            known = row.first.compile_id in order
            found.append((order.index(row.first.compile_id) if known else len(order), _IN_ORDER.index(row.aspect), row))
    return min(found, key=lambda one: one[:2])[2] if found else None


def _missing(rows: Sequence[RankRow], world: int | None) -> list[int]:
    there = {row.rank for row in rows if row.rank is not None}
    count = min(max([world or 0, *(rank + 1 for rank in there)]), 1 << 16)
    return [rank for rank in range(count) if rank not in there] if there else []


def slow_compiles(trace: Trace, logs: Sequence[int], names: dict[int, int | None]) -> list[SlowCompile]:
    """Return the successful compiles that several logs have: slow ones first, then by descending difference."""
    found = sql.rows(
        trace,
        "SELECT compile_id, frame, count(*), arg_min(log, (duration_ns, log)), min(duration_ns),"
        " arg_max(log, (duration_ns, -log)),"
        " max(duration_ns), quantile_disc(duration_ns, 0.5) FROM compiles"
        " WHERE duration_ns IS NOT NULL AND status = 'ok' AND list_contains(?, log)"
        " GROUP BY compile_id, frame HAVING count(*) > 1",
        [list(logs)],
    )
    rows = [
        SlowCompile(
            compile_id, frame, count, fast, names[fast], fast_ns, slow, names[slow], slow_ns, middle,
            slow_ns >= SLOW_FACTOR * middle and slow_ns - middle >= SLOW_BY_NS,
        )
        for compile_id, frame, count, fast, fast_ns, slow, slow_ns, middle in found
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (not row.is_slow, row.fastest_ns - row.slowest_ns, row.compile_id))


class _Aspects:
    """Comparison of the ranks in every aspect."""

    def __init__(self, trace: Trace, logs: list[int], names: dict[int, int | None]) -> None:
        self.trace, self.logs, self.names = trace, logs, names
        self.comparer = Comparer(trace)
        programs = self.comparer.programs()
        self.programs = [programs.get(log) for log in logs]
        failed = sql.number(trace, "SELECT count(*) FROM compiles WHERE status IN ('failed', 'fallback')")
        self.may_be_stages = not failed and all(self.programs) and are_stages(self.programs) and not self._replicas()

    def rows(self, slow: Sequence[SlowCompile]) -> list[AspectRow]:
        rows = [self._row(aspect, bases) for aspect, bases in BASES.items() if bases]
        rows.append(self._times(slow))
        if rows[0].state == "differ":  # the stages of a correct pipeline agree in their collectives
            rows = [replace(row, state="differ") if row.state == "stages" else row for row in rows]
            rows = [replace(row, only_evaluates=False) for row in rows]
        return rows

    def _replicas(self) -> bool:
        """Return whether DistributedDataParallel holds the parameters of ranks with different programs alike."""
        of_rank = {self.names[log]: program for log, program in zip(self.logs, self.programs, strict=True)}
        teams = sql.rows(
            self.trace, "SELECT DISTINCT ranks FROM replicated_parameters WHERE list_contains(?, log)", [self.logs]
        )
        return any(len({of_rank.get(rank) for rank in sql.json_value(ranks)} - {None}) > 1 for (ranks,) in teams)

    def _row(self, aspect: Aspect, bases: Sequence[Basis]) -> AspectRow:
        groups: list[RankGroup] = []
        for basis in bases:
            if not any(log in self.comparer.wholes[basis] for log in self.logs):
                continue
            groups = self._groups(basis)
            if len(groups) > 1:
                first, same_program = self._first(aspect, basis, groups)
                stages = self.may_be_stages and not same_program and aspect != "collectives"
                evaluates = aspect == "compile_ids" and self._only_evaluates(groups)
                return AspectRow(aspect, TITLES[aspect], "stages" if stages else "differ", groups, first, evaluates)
        return AspectRow(aspect, TITLES[aspect], "alike" if groups else "nothing", groups, None)

    def _groups(self, basis: Basis) -> list[RankGroup]:
        found = self.comparer.groups(basis, self.logs)
        return [
            RankGroup(logs, rank_names([self.names[log] for log in logs]), self._items(basis, logs[0]))
            for logs in found
        ]

    def _only_evaluates(self, groups: Sequence[RankGroup]) -> bool:
        """Return whether groups agree in all compiles but those of inference graphs, and all of them train."""
        others = []
        for log in (group.logs[0] for group in groups):
            phases: dict[str, list[str]] = dict(sql.rows(self.trace, _PHASES, [log]))
            if not sql.number(self.trace, _TRAINS, [log, log]):
                return False
            compiles = sequence(self.trace, "compile_ids", log)
            others.append([one for one in compiles if phases.get(one.compile_id or "") != ["inference"]])
        return all(split_strict(others[0], of_log) is None for of_log in others[1:])

    def _items(self, basis: Basis, log: int) -> int:
        if basis == "collectives":
            return len(sequence(self.trace, basis, log))
        whole = self.comparer.wholes[basis].get(log)
        return whole.items if whole is not None else 0

    def _first(self, aspect: Aspect, basis: Basis, groups: Sequence[RankGroup]) -> tuple[FirstDifference, bool]:
        """Return the earliest difference between groups, and whether ranks with the same program differ."""
        same = self._of_one_program(groups)
        pairs = same if same and self.may_be_stages else [(groups[0].logs[0], group.logs[0]) for group in groups[1:]]
        found = [(self.comparer.split(basis, *pair), pair) for pair in pairs]
        split, (left, right) = min(
            ((split, pair) for split, pair in found if split is not None), key=lambda one: one[0].left
        )
        return self.difference(aspect, basis, left, right, split), bool(same)

    def _of_one_program(self, groups: Sequence[RankGroup]) -> list[tuple[int, int]]:
        """Return pairs of logs that run the same program but are in different groups."""
        programs = dict(zip(self.logs, self.programs, strict=True))
        of_group = [{programs[log]: log for log in reversed(group.logs)} for group in groups]
        return [(a[program], b[program]) for a, b in combinations(of_group, 2) for program in a.keys() & b.keys()]

    def difference(self, aspect: Aspect, basis: Basis, left: int, right: int, split: Split) -> FirstDifference:
        ours, theirs = sequence(self.trace, basis, left), sequence(self.trace, basis, right)
        a, b = at_index(ours, split.left), at_index(theirs, split.right)
        kind, inside = split.kind, None
        within = opened(self.trace, basis, left, right, a, b)
        if within is not None:
            ours, theirs, inside = within
            split = split_strict(ours, theirs) or Split(0, 0, kind)
            a, b = at_index(ours, split.left), at_index(theirs, split.right)
        at = a or b
        first = FirstDifference(
            basis=basis, left=left, right=right, left_rank=self.names[left], right_rank=self.names[right],
            left_index=split.left, right_index=split.right, left_items=len(ours), right_items=len(theirs),
            left_text=_told(a, split), right_text=_told(b, split), compile_id=at.compile_id if at else None,
            kind=kind, text="", page=difference_page(aspect, left, right),
        )  # fmt: skip
        return replace(first, text=_difference_text(basis, first, inside))

    def _times(self, slow: Sequence[SlowCompile]) -> AspectRow:
        late = [row for row in slow if row.is_slow]
        if not slow or not late:
            return AspectRow("times", TITLES["times"], "alike" if slow else "nothing", [], None)
        row = late[0]
        behind = {row.slowest_log for row in late}
        groups = [[log for log in self.logs if (log in behind) == is_behind] for is_behind in (False, True)]
        order = [item.compile_id for item in sequence(self.trace, "compile_ids", row.fastest_log)]
        at = order.index(row.compile_id)
        first = FirstDifference(
            basis=None, left=row.fastest_log, right=row.slowest_log, left_rank=row.fastest_rank,
            right_rank=row.slowest_rank, left_index=at, right_index=at, left_items=len(order), right_items=len(order),
            left_text=format_ns(row.fastest_ns), right_text=format_ns(row.slowest_ns), compile_id=row.compile_id,
            kind="slow",
            text=f"compile {row.compile_id} took {format_ns(row.slowest_ns)} on rank {row.slowest_rank} and"
            f" {format_ns(row.fastest_ns)} on rank {row.fastest_rank}",
            page=difference_page("times", row.fastest_log, row.slowest_log),
        )  # fmt: skip
        found = [RankGroup(logs, rank_names([self.names[log] for log in logs]), len(late)) for logs in groups if logs]
        return AspectRow("times", TITLES["times"], "differ", found, first)


def _told(item: RankItem | None, split: Split) -> str | None:
    if item is None:
        return None
    extra = {"size": item.detail, "group": f"group {item.group}"}.get(split.kind)
    return f"{item.text} {extra}" if extra else item.text


_THINGS: dict[Basis, str] = {
    "compile_ids": "compile",
    "caches": "decision",
    "collectives": "collective",
    "launched": "collective",
    "graphs": "graph",
    "executed": "call",
    "tensors": "graph",
}


def _difference_text(basis: Basis, first: FirstDifference, inside: str | None) -> str:
    ranks, texts = (first.left_rank, first.right_rank), (first.left_text, first.right_text)
    if basis in ("graphs", "tensors") and texts[0] == texts[1]:
        return f"the {texts[0]}"
    if basis == "collectives":
        inside = first.compile_id
    where = f"{_THINGS[basis]} {first.left_index + 1:,}{f' in {inside}' if inside else ''}"
    if texts[0] == texts[1]:
        return f"{where}: the {texts[0]} of rank {ranks[0]} and that of rank {ranks[1]} differ"
    counts = first.left_items, first.right_items
    sides = [
        f"rank {rank} has {text or ('no more' if count else 'none')}"
        for rank, text, count in zip(ranks, texts, counts, strict=True)
    ]
    return f"{where}: {', and '.join(sides)}"


def rank_names(ranks: Sequence[int | None]) -> str:
    """Return a name such as ``ranks 0, 2``, ``rank 1`` or ``ranks 0–7``."""
    numbers = sorted(rank for rank in ranks if rank is not None)
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"ranks {numbers[0]}–{numbers[-1]}"
    more = f" and {len(numbers) - MOST_NAMED} more" if len(numbers) > MOST_NAMED else ""
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {', '.join(map(str, numbers[:MOST_NAMED]))}{more}"


def difference_page(aspect: Aspect, left: int, right: int) -> str:
    return f"/ranks/difference?{urlencode({'aspect': aspect, 'left': left, 'right': right})}"
