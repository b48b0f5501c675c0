"""Matches the logs, graphs and launch sites of two traces by their content. What has no partner is listed."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import cached_property
from typing import NamedTuple, TypeVar

from stepscope.viewer.compare.rows import GraphName, GraphPair, KernelChange, Side, Wanted, WithoutPartner
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.graphs.queries.graphs import graph_label, innermost, list_graphs, wrapper_code
from stepscope.viewer.graphs.queries.kernel_code import own_code
from stepscope.viewer.graphs.rows import GraphRow, SourceLine
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.text_diff import side_by_side

LEAST_ALIKE = 0.5
"""Least share of launch sites that graphs with different code must have in common to be partners."""
_MOST_LINES = 40
_COMMENT = re.compile(r"^\s*(?:#(?!include|pragma|if|endif|define|else).*|//.*)$\n?", re.MULTILINE)
_FILE = re.compile(r"""(["'<])(?:[A-Za-z]:)?[/\\][^"'<>\n]*["'>]""")
_HASH = re.compile(r"\b(?:[0-9A-F]{32,}|[0-9a-f]{32,}|c[a-z2-7]{50,52})\b")
_MEASURED = re.compile(r"'(?:kernel_num_gb|kernel_flop|coordinate_descent\w*)': [^,}]*,? ?")
_NUMBER = re.compile(r"\d+")
_LAST_NUMBER = re.compile(r"_\d+$")
_BUFFER = re.compile(r"\bbuf\d+\b")
_SITES = """
    SELECT s.graph, s.site, s.function, s.line, s.kernel, s.kind, s.aten, s.stacks,
           (SELECT list([a.role, a.name] ORDER BY a.argument) FROM arguments a WHERE a.site = s.site) AS arguments
    FROM sites s ORDER BY s.graph, s.local_site
"""
_WRITERS = """
    SELECT a.name, s.kernel, s.stacks FROM arguments a JOIN sites s ON s.site = a.version_site
    WHERE a.site = $1 AND a.role <> 'out' AND a.version_moment = 'after' AND NOT list_contains($2, a.version_site)
    ORDER BY a.argument
"""
_FRAMES = "SELECT log, compile_id, function FROM compiles WHERE compile_id IS NOT NULL"
_LOGS = """
    SELECT log, rank, path FROM logs WHERE ($1 IS NULL OR rank = $1) AND ($2 IS NULL OR log = $2) ORDER BY log
"""
_COUNTS = """
    SELECT (SELECT count(DISTINCT graph) FROM calls WHERE step = $1 AND list_contains($2, log))
           + (SELECT count(*) FROM graphs WHERE $1 IS NULL AND list_contains($2, log)),
           (SELECT count(*) FROM launches WHERE ($1 IS NULL OR step = $1) AND list_contains($2, log)),
           (SELECT count(*) FROM value_rows WHERE ($1 IS NULL OR step = $1) AND list_contains($2, log))
"""
_HAS_STEP = "SELECT EXISTS(FROM calls WHERE step = ? AND list_contains(?, log))"
_OF_STEP = "SELECT DISTINCT graph FROM calls WHERE step = ?"
T = TypeVar("T")


class _Stored(NamedTuple):
    graph: int
    site: int
    function: str
    line: int | None
    kernel: str
    kind: str
    aten: str | None
    stacks: str | None
    arguments: list[list[str]] | None

    @property
    def form(self) -> Hashable:
        """Return what the sites of graphs that differ in constants, numbers of buffers or one kernel have in common."""
        arguments = tuple((role, _NUMBER.sub("", name)) for role, name in self.arguments or ())
        return self.function, self.kind, _LAST_NUMBER.sub("", self.kernel), self.aten, arguments


@dataclass
class Graph:
    """A graph of one side."""

    row: GraphRow
    frame: str | None
    code: str | None
    sites: list[_Stored] = field(default_factory=list)

    @property
    def name(self) -> GraphName:
        return GraphName(self.row.graph, graph_label(self.row.graph, self.row.compile_id, self.row.phase), self.frame)

    @property
    def content(self) -> Hashable:
        return self.row.phase, self.text if self.code is not None else tuple(site.form for site in self.sites)

    @cached_property
    def text(self) -> str | None:
        return None if self.code is None else comparable_code(self.code)

    @property
    def place(self) -> Hashable:
        return self.row.phase, self.frame


@dataclass(frozen=True)
class SitePair:
    left: int
    right: int
    graph: str
    kernel: str
    source: SourceLine | None
    code: str
    """The kernel of the left side and its statement; empty if the log does not hold it."""
    is_same_code: bool


@dataclass
class Pairs:
    """What the two sides have in common, and what only one has."""

    graphs: list[GraphPair] = field(default_factory=list)
    sites: list[SitePair] = field(default_factory=list)
    kernels: list[KernelChange] = field(default_factory=list)
    without_partner: list[WithoutPartner] = field(default_factory=list)


def comparable_code(code: str) -> str:
    """Return the source of a wrapper without comments, names of files and hashes."""
    text = _FILE.sub(r"\1file\1", _COMMENT.sub("", code))
    return _MEASURED.sub("", _HASH.sub("hash", text))


def match(left: Trace, right: Trace, steps: tuple[int | None, int | None], logs: Sequence[tuple[int, int]]) -> Pairs:
    """Match the graphs of each pair of logs: those of equal content in their order, then those of one frame and phase
    that have at least half of their launch sites in common."""
    found, sides = Pairs(), (_graphs(left, steps[0]), _graphs(right, steps[1]))
    for pair in logs:
        ours, theirs = ([one for one in side if one.row.log == log] for side, log in zip(sides, pair, strict=True))
        same, ours, theirs = _in_order(ours, theirs, lambda graph: graph.content)
        alike, ours, theirs = _in_order(ours, theirs, lambda graph: graph.place, _alike)
        for a, b in sorted([*same, *alike], key=lambda both: both[0].row.graph):
            _add(found, a, b)
        found.without_partner += [WithoutPartner("left", "graph", _full(one), 1) for one in ours]
        found.without_partner += [WithoutPartner("right", "graph", _full(one), 1) for one in theirs]
    return found


def _graphs(trace: Trace, step: int | None) -> list[Graph]:
    frames = {(log, compile_id): function for log, compile_id, function in sql.rows(trace, _FRAMES)}
    of_step = None if step is None else {graph for (graph,) in sql.rows(trace, _OF_STEP, [step])}
    found = {
        row.graph: Graph(row, frames.get((row.log, row.compile_id)), wrapper_code(trace, row))
        for row in list_graphs(trace)
        if of_step is None or row.graph in of_step
    }
    for site in sql.records(_Stored, trace, _SITES):
        if site.graph in found:
            found[site.graph].sites.append(site)
    return list(found.values())


def _in_order(
    left: Iterable[T], right: Iterable[T], key: Callable[[T], Hashable], fits: Callable[[T, T], bool] | None = None
) -> tuple[list[tuple[T, T]], list[T], list[T]]:
    """Return the pairs of equal keys in order, and what is left of both sides."""
    waiting: defaultdict[Hashable, list[T]] = defaultdict(list)
    for one in right:
        waiting[key(one)].append(one)
    pairs, alone = [], []
    for one in left:
        others = waiting[key(one)]
        partner = next((other for other in others if fits is None or fits(one, other)), None)
        if partner is None:
            alone.append(one)
        else:
            others.remove(partner)
            pairs.append((one, partner))
    return pairs, alone, [one for others in waiting.values() for one in others]


def _alike(left: Graph, right: Graph) -> bool:
    if not left.sites or not right.sites:
        return False
    common = sum(len(block) for block in _blocks(left, right))
    return common / max(len(left.sites), len(right.sites)) >= LEAST_ALIKE


def _blocks(left: Graph, right: Graph) -> list[list[tuple[_Stored, _Stored]]]:
    ours, theirs = ([site.form for site in graph.sites] for graph in (left, right))
    matcher = SequenceMatcher(None, ours, theirs, autojunk=False)
    blocks = [(0, 0, len(ours))] if ours == theirs else matcher.get_matching_blocks()
    return [[(left.sites[a + i], right.sites[b + i]) for i in range(size)] for a, b, size in blocks]


def _add(found: Pairs, left: Graph, right: Graph) -> None:
    is_same = None if left.text is None or right.text is None else left.text == right.text
    diff = side_by_side(left.text or "", right.text or "") if is_same is False else None
    found.graphs.append(
        GraphPair(left.name, right.name, is_same, diff.added if diff else 0, diff.removed if diff else 0)
    )
    pairs = [pair for block in _blocks(left, right) for pair in block]
    label = left.name.label
    for ours, theirs in pairs:
        source = innermost(ours.stacks)
        lines = _changed_lines(left, ours, right, theirs) if is_same is False else []
        found.sites.append(
            SitePair(
                ours.site, theirs.site, label, ours.kernel, source, _own_code(left, ours), is_same is True or not lines
            )
        )
        if lines:
            found.kernels.append(KernelChange(label, ours.kernel, ours.site, theirs.site, source, lines))
    both = {site.site for site, _ in pairs}, {site.site for _, site in pairs}
    for side, graph, known in (("left", left, both[0]), ("right", right, both[1])):
        found.without_partner += [
            WithoutPartner(side, "launch site", f"{one.kernel} of {label}{_at(innermost(one.stacks))}", 1)  # type: ignore[arg-type]
            for one in graph.sites
            if one.site not in known
        ]


def _changed_lines(left: Graph, ours: _Stored, right: Graph, theirs: _Stored) -> list[tuple[str, str]]:
    rows = side_by_side(_own_code(left, ours), _own_code(right, theirs)).rows
    return [(row.left, row.right) for row in rows if row.change not in ("same", "gap")][:_MOST_LINES]


def _own_code(graph: Graph, site: _Stored) -> str:
    """Return the kernel of a site and its statement, without what only numbers the buffers and kernels of the graph."""
    text = own_code(graph.code or "", site.kernel, site.kind, site.line)
    return _BUFFER.sub("buf", comparable_code(text.replace(site.kernel, _LAST_NUMBER.sub("", site.kernel))))


class Writer(NamedTuple):
    """A launch site that wrote what another reads."""

    name: str
    """The argument of the reader."""
    kernel: str
    place: str
    """`` (model.py:12)``, or "" if the line is unknown."""


def lone_writers(trace: Trace, site: int, paired: Sequence[int]) -> list[Writer]:
    """Return the sites that wrote what a site of this trace reads and that are not among the `paired` ones."""
    found = sql.rows(trace, _WRITERS, [site, list(paired)])
    return [Writer(name, kernel, _at(innermost(stacks))) for name, kernel, stacks in found]


def _at(source: SourceLine | None) -> str:
    return f" ({source.place})" if source else ""


def _full(graph: Graph) -> str:
    return " ".join(part for part in (graph.name.label, graph.frame and f"of {graph.frame}") if part)


def match_logs(
    left: tuple[Trace, Wanted], right: tuple[Trace, Wanted]
) -> tuple[list[tuple[int, int]], list[WithoutPartner]]:
    """Match logs by rank, and those of one rank in order; the only logs of two sides are partners in any case."""
    ours, theirs = (logs_of(*side) for side in (left, right))
    if len(ours) == len(theirs) == 1:
        return [(ours[0][0], theirs[0][0])], []
    is_one_rank = any(side.rank is not None or side.log is not None for _, side in (left, right))
    pairs, alone, others = _in_order(ours, theirs, lambda row: None if is_one_rank else row[1])
    lost = [WithoutPartner("left", "log", path, 1) for _, _, path in alone]
    return [(a[0], b[0]) for a, b in pairs], lost + [WithoutPartner("right", "log", path, 1) for _, _, path in others]


def side_of(trace: Trace, side: Wanted) -> Side:
    """Count what a side has."""
    logs = [log for log, _, _ in logs_of(trace, side)]
    (graphs, launches, values), *_ = sql.rows(trace, _COUNTS, [side.step, logs])
    paths = [str(trace.logs[number].path) for number in logs if number < len(trace.logs)]
    return Side(side.trace, side.step, side.rank, side.log, paths, graphs, launches, values)


def logs_of(trace: Trace, side: Wanted) -> list[tuple[int, int | None, str]]:
    """Return number, rank and path of the logs of a side."""
    return sql.rows(trace, _LOGS, [side.rank, side.log])


def check_part(trace: Trace, side: Wanted) -> None:
    """Raise StepscopeError if the trace lacks the rank, the log or the step of a side."""
    if side.rank is not None and not logs_of(trace, replace(side, log=None)):
        raise StepscopeError(f"{side.trace[0]} has no log of rank {side.rank}.")
    if side.log is not None and not logs_of(trace, side):
        of_rank = "" if side.rank is None else f" of rank {side.rank}"
        raise StepscopeError(f"{side.trace[0]} has no log{of_rank} with the number {side.log}.")
    if side.step is not None and not _has_step(trace, side):
        raise StepscopeError(f"{side.trace[0]} has no call of a graph in step {side.step}.")


def _has_step(trace: Trace, side: Wanted) -> bool:
    """Return whether a graph was called in the step of a side."""
    logs = [log for log, _, _ in logs_of(trace, side)]
    return bool(sql.number(trace, _HAS_STEP, [side.step, logs]))
