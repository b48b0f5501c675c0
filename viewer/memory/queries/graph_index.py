"""Reads what relates memory to a graph: launch sites, scheduler nodes, model lines, and names of the same memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stepscope.viewer.graphs.queries.graphs import graph_label, innermost
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

KEPT = 16
"""Number of results of each kind that an open trace keeps in memory."""
_LONG_KEPT = 2
"""Number of calls whose launches an open trace keeps in memory, enough for one page."""
_SAME_MEMORY = ("reuse", "alias", "pool_member")
_MAIN = ("call", "partition_")
"""Prefixes of wrapper functions that share the schedule of the graph itself."""


class SiteFacts(NamedTuple):
    """Facts of a launch site, with JSON that is parsed on demand because a graph may have thousands of sites."""

    kernel: str
    snodes: str | None
    stacks: str | None
    line: int


@dataclass
class GraphIndex:
    """The launch sites of one graph and the writers of its memory; shared by an open trace, so not to be modified."""

    sites: dict[int, SiteFacts] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)
    """First name of the memory of each name."""
    names: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Other names of each memory in the order of the code, keyed by its first name."""
    reused: set[str] = field(default_factory=set)
    """Names that reuse the memory of another buffer."""
    writers: dict[str, int] = field(default_factory=dict)
    """First site that writes each memory, keyed by the first name of the memory."""
    own_writers: dict[str, int] = field(default_factory=dict)
    """First site that writes each buffer, keyed by its own name."""
    reuses: defaultdict[str, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    """Lines at which another buffer takes over a memory, with its name, keyed by the first name of the memory."""
    _sources: dict[str | None, SourceLine | None] = field(default_factory=dict)

    def kernel(self, site: int | None) -> str | None:
        facts = self.sites.get(site) if site is not None else None
        return facts.kernel if facts else None

    def source(self, site: int | None) -> SourceLine | None:
        facts = self.sites.get(site) if site is not None else None
        if facts is None:
            return None
        if facts.stacks not in self._sources:
            self._sources[facts.stacks] = innermost(facts.stacks)
        return self._sources[facts.stacks]

    def writer(self, name: str, site: int | None = None) -> int | None:
        """Return `site` if it is known, else the first site that writes `name`, or at least its memory."""
        if site is not None:
            return site
        if name in self.own_writers:
            return self.own_writers[name]
        whole = name.partition("[")[0]
        found = (self.writers.get(key) for key in (name, self.same.get(name, name), whole))
        return next((writer for writer in found if writer is not None), None)

    def owner(self, name: str, site: int | None = None) -> str:
        """Return the buffer that has the memory of `name` when `site` launches, or at the end of the call."""
        facts = self.sites.get(site) if site is not None else None
        taken = [
            owner
            for line, owner in self.reuses.get(self.same.get(name, name), ())
            if facts is None or line <= facts.line
        ]
        return taken[-1] if taken else name

    def other_names(self, name: str) -> list[str]:
        first = self.same.get(name, name)
        return [other for other in (first, *self.names.get(first, ())) if other != name]


def graph_index(trace: Trace, graph: int) -> GraphIndex:
    return trace.once(_read_places, graph, most=KEPT)


def _read_places(trace: Trace, graph: int) -> GraphIndex:
    places = GraphIndex()
    found = sql.rows(
        trace,
        "SELECT site, kernel, snodes, stacks, line, outputs FROM sites WHERE graph = ? ORDER BY local_site",
        [graph],
    )
    statements = sql.rows(
        trace, "SELECT event, buffer, of_buffer, line FROM memory_statements WHERE graph = ? ORDER BY line", [graph]
    )
    event: str
    buffer: str
    of: str | None
    line: int
    for event, buffer, of, line in statements:
        if event in _SAME_MEMORY and of is not None and buffer not in places.same:
            first = places.same[buffer] = places.same.get(of, of)
            places.names[first].append(buffer)
            if event == "reuse":
                places.reused.add(buffer)
                places.reuses[first].append((line, buffer))
    written = sql.rows(
        trace,
        "SELECT a.site, coalesce(a.storage, a.buffer), a.buffer FROM arguments a JOIN sites s ON s.site = a.site"
        " WHERE s.graph = ? AND a.role <> 'in' AND coalesce(a.storage, a.buffer) IS NOT NULL ORDER BY s.local_site",
        [graph],
    )
    site: int
    name: str
    for site, name, buffer in written:
        places.writers.setdefault(places.same.get(name, name), site)
        places.own_writers.setdefault(buffer, site)
    for site, kernel, snodes, stacks, line, outputs in found:
        places.sites[site] = SiteFacts(kernel, snodes, stacks, line)
        for name in sql.json_value(outputs) if outputs != "[]" else ():
            places.writers.setdefault(places.same.get(name, name), site)
    return places


@dataclass(frozen=True)
class Schedule:
    """The scheduler nodes of a graph or subgraph, in parallel columns."""

    schedule: int
    peak_bytes: int
    peak_snodes: list[int]
    base_bytes: int
    snode: list[str]
    index: dict[str, int]
    """Index of each node, keyed by its name and by the names of its members."""
    kind: list[str]
    alloc_bytes: list[int]
    free_bytes: list[int]
    after_alloc_bytes: list[int]
    after_free_bytes: list[int]
    _nodes: dict[str, list[int]] = field(default_factory=dict)
    _by_site: dict[int, list[int]] = field(default_factory=dict)

    def nodes_by_site(self, places: GraphIndex) -> dict[int, list[int]]:
        """Return `nodes_of` every site of the graph, keyed by site."""
        if len(self._by_site) != len(places.sites):
            self._by_site.update({site: self.nodes_of(facts) for site, facts in places.sites.items()})
        return self._by_site

    def nodes_of(self, facts: SiteFacts | None) -> list[int]:
        """Return the indices of the nodes that a launch site computes, ascending."""
        if facts is None or facts.snodes is None:
            return []
        found = self._nodes.get(facts.snodes)
        if found is None:
            names = sql.json_value(facts.snodes)
            found = self._nodes[facts.snodes] = sorted({self.index[name] for name in names if name in self.index})
        return found


def schedule_of(trace: Trace, graph: int, subgraph: str | None) -> Schedule | None:
    """Return the schedule of a graph or of one of its subgraphs; None if it was not recorded."""
    return trace.once(_read_schedule, graph, subgraph, most=KEPT)


def _read_schedule(trace: Trace, graph: int, subgraph: str | None) -> Schedule | None:
    row = sql.row(
        trace,
        "SELECT schedule, peak_bytes, peak_snodes, base_bytes FROM schedules"
        " WHERE graph = ? AND subgraph IS NOT DISTINCT FROM ?",
        [graph, subgraph],
    )
    if row is None:
        return None
    schedule, peak_bytes, peak_snodes, base_bytes = row
    nodes = sql.rows(
        trace,
        "SELECT snode, CASE WHEN members <> '[\"' || snode || '\"]' THEN members END, kind, alloc_bytes, free_bytes,"
        " after_alloc_bytes, after_free_bytes FROM schedule_nodes WHERE schedule = ? ORDER BY snode_index",
        [schedule],
    )
    index: dict[str, int] = {}
    columns = [list(column) for column in zip(*nodes, strict=True)] or [[] for _ in range(7)]
    for i, (snode, members) in enumerate(zip(columns[0], columns[1], strict=True)):
        for name in (snode, *(sql.json_value(members) or ())):
            index.setdefault(name, i)
    peaks = sql.json_value(peak_snodes)
    return Schedule(*[schedule, peak_bytes, peaks, base_bytes, columns[0], index, *columns[2:]])


def is_main(function: str) -> bool:
    return function.startswith(_MAIN)


def subgraph_of(function: str) -> str | None:
    """Return the subgraph that a wrapper's function runs; None for the graph itself."""
    return None if is_main(function) else function


@dataclass(frozen=True)
class MeasuredCall:
    """A call whose storages were followed."""

    call: int
    log: int
    local_call: int
    step: int
    layout: int
    graph: int
    function: str
    phase: str | None
    start_ns: int
    end_ns: int
    peak_bytes: int
    peak_position: int
    base_bytes: int


_CALL = """
    SELECT m.call, m.log, m.local_call, m.step, m.layout, l.graph, l.function, g.phase, c.start_ns,
           c.start_ns + greatest(c.duration_ns, 0) AS end_ns, l.peak_bytes, l.peak_position, l.base_bytes
    FROM measured_calls m JOIN layouts l ON l.layout = m.layout JOIN calls c ON c.call = m.call
    LEFT JOIN graphs g ON g.graph = l.graph WHERE m.call = ?
"""


def measured_call(trace: Trace, call: int) -> MeasuredCall | None:
    return trace.once(_read_call, call, most=KEPT)


def _read_call(trace: Trace, call: int) -> MeasuredCall | None:
    return sql.record(MeasuredCall, trace, _CALL, [call])


def measured_functions(trace: Trace, graph: int) -> dict[str, int]:
    """Return the number of measured calls of each function of a graph that has any."""
    return dict(
        sql.rows(
            trace,
            "SELECT function, sum(calls)::BIGINT FROM layouts WHERE graph = ? AND calls > 0 GROUP BY function"
            " ORDER BY min(layout)",
            [graph],
        )
    )


def highest_call(trace: Trace, graph: int, functions: Sequence[str]) -> int | None:
    """Return the first call with the highest measured peak; partitions go first because they contain the launches."""
    found: int | None = sql.number(
        trace,
        "SELECT first_call FROM layouts WHERE graph = ? AND calls > 0 AND list_contains(?, function)"
        " ORDER BY starts_with(function, 'partition_') DESC, peak_bytes DESC, first_call LIMIT 1",
        [graph, list(functions)],
    )
    return found


def launches_of(trace: Trace, call: int) -> list[tuple[int, int, int]]:
    """Return (launch, site, start in ns) of a call's own launches by position; the list must not be modified."""
    return trace.once(_read_launches, call, most=_LONG_KEPT)


def _read_launches(trace: Trace, call: int) -> list[tuple[int, int, int]]:
    return sql.rows(trace, "SELECT launch, site, start_ns FROM launches WHERE call = ? ORDER BY launch", [call])


@dataclass(frozen=True)
class Moment:
    """The rank, step and time of a call."""

    rank: int | None
    step: int | None
    time_unix_ns: int


def moment_of(trace: Trace, call: int | None) -> Moment:
    row = sql.row(
        trace,
        "SELECT l.rank, c.step, coalesce(c.start_ns - l.monotonic_ns + l.unix_ns, 0)"
        " FROM calls c JOIN logs l ON l.log = c.log WHERE c.call = ?",
        [call],
    )
    return Moment(*row) if row else Moment(None, None, 0)


def sites_using(trace: Trace, graph: int, name: str, roles: Sequence[str] = ("in", "out", "inout")) -> set[int]:
    """Return the launch sites of a graph that take the memory of `name` as an argument of one of these roles."""
    found = sql.rows(
        trace,
        "SELECT DISTINCT a.site FROM arguments a JOIN sites s ON s.site = a.site WHERE s.graph = $1"
        " AND (list_contains($2, a.storage) OR list_contains($2, a.buffer)) AND list_contains($3, a.role)",
        [graph, [name, *graph_index(trace, graph).other_names(name)], list(roles)],
    )
    return {site for (site,) in found}


def label_of(trace: Trace, graph: int) -> str:
    """Return the label of a graph, such as ``0/0 forward``."""
    row = sql.row(trace, "SELECT compile_id, phase FROM graphs WHERE graph = ?", [graph])
    return graph_label(graph, *(row or (None, None)))


def named_graph(trace: Trace, graph: int) -> str:
    """Return a graph as sentences name it, such as ``graph 0/0 forward``."""
    label = label_of(trace, graph)
    return label if label.startswith("graph ") else f"graph {label}"
