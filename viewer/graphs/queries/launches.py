"""One launch: its position, its arguments, the launches that write and read its buffers, its generated code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from stepscope.viewer.graphs.queries.argument_bytes import argument_bytes
from stepscope.viewer.graphs.queries.graphs import (
    before_return,
    first_names,
    graph_row,
    memory_statements,
    site_in_call,
    wrapper_code,
)
from stepscope.viewer.graphs.queries.kernel_code import cut
from stepscope.viewer.graphs.queries.kernel_configs import config_of
from stepscope.viewer.graphs.queries.scalars import in_call, symbols_at
from stepscope.viewer.steps.rows import LaunchDetail
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.values import call_tree, has_values, launch_values

_LAUNCH = """
    SELECT l.launch, l.log, l.step, l.thread, l.call, c.graph, l.site, l.start_ns, l.duration_ns, l.device_duration_ns,
           l.returned, c.local_call
    FROM launches l JOIN calls c ON c.call = l.call WHERE l.launch = ?
"""
_STEP = """
    SELECT min(launch), count(*), (SELECT rank FROM logs WHERE log = $1),
           (SELECT start_ns FROM steps WHERE log = $1 AND step = $2)
    FROM launches WHERE log = $1 AND step = $2
"""
_SAME_KERNEL = """
    SELECT max(launch) FILTER (launch < $2), min(launch) FILTER (launch > $2) FROM launches
    WHERE launch BETWEEN $1 AND $3 AND site IN (SELECT unnest($4))
"""
_OF_CALLS = """
    SELECT launch, call, site FROM launches WHERE launch BETWEEN ? AND ? AND list_contains(?, call) ORDER BY launch
"""
KEPT = 64
"""Number of steps, calls and kernels whose launches an open trace keeps in memory."""
_SHARED_SCOPE = ("call", "partition_")


def launch_detail(trace: Trace, launch: int) -> LaunchDetail | None:
    """Return a launch, or None if there is none with that id."""
    found = sql.named(trace, _LAUNCH, [launch])
    if not found:
        return None
    (row,) = found
    graph_id, site_id, local_call = (row.pop(name) for name in ("graph", "site", "local_call"))
    call = row["call"]
    first, count, rank, step_ns = trace.once(_step, row["log"], row["step"], most=KEPT)
    last = first + count - 1
    graph, site = graph_row(trace, graph_id), site_in_call(trace, graph_id, site_id, local_call)
    assert graph is not None
    symbols = symbols_at(trace, call, launch)
    if row["returned"] is False:
        site = before_return(site)
    flow = trace.once(_Flow, graph_id, call, first, last, most=KEPT)
    code = wrapper_code(trace, graph)
    same = [first, launch, last, trace.once(_sites_of_kernel, site.kernel, most=KEPT)]
    ((previous_same, next_same),) = sql.rows(trace, _SAME_KERNEL, same)
    part = cut(code, site.kernel, site.kind, site.line) if code is not None else None
    read, written = argument_bytes(site.arguments)
    return LaunchDetail(
        **row,
        rank=rank,
        of=count,
        ordinal=launch - first + 1,
        graph=graph,
        site=in_call(site, symbols),
        step_offset_ns=row["start_ns"] - step_ns,
        previous=launch - 1 if launch > first else None,
        next=launch + 1 if launch < last else None,
        previous_same=previous_same,
        next_same=next_same,
        written_by=flow.written_by(launch),
        read_by=flow.read_by(launch),
        read_bytes=read,
        written_bytes=written,
        config=config_of(trace, graph_id, site.kernel),
        code=part.text if part else None,
        code_first_line=part.first_line if part else None,
        values=launch_values(trace, launch, call, site_id, site.arguments) if has_values(trace) else [],
        symbols=symbols,
    )


def _step(trace: Trace, log: int, step: int) -> sql.Row:
    """Return the first launch of a step, the number of its launches, the rank of its log, and its start."""
    found = sql.row(trace, _STEP, [log, step])
    assert found is not None
    return found


def _sites_of_kernel(trace: Trace, kernel: str) -> list[int]:
    return [site for (site,) in sql.rows(trace, "SELECT site FROM sites WHERE kernel = ?", [kernel])]


@dataclass(frozen=True)
class _Use:
    """A launch of a call tree with the buffers that it accesses."""

    launch: int
    arguments: dict[int, tuple[str, str]]
    """Role and buffer of each argument."""
    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)


class _Flow:
    """The buffers that the launches of a call, and of the calls inside it, write and read.

    Names of buffers belong to one function; the partitions of a graph share those of `call`. A name that reuses or
    aliases another stands for the same storage. `first` and `last` are the first and last launch of the step.
    """

    def __init__(self, trace: Trace, graph: int, call: int, first: int, last: int) -> None:
        self._storage = trace.once(_storages, graph, most=KEPT)
        functions = call_tree(trace, call)
        launches = sql.rows(trace, _OF_CALLS, [first, last, list(functions)])
        arguments = trace.once(_arguments_of, *sorted({site for _, _, site in launches}), most=KEPT)
        self._uses = [
            self._use(launch, "" if functions[at].startswith(_SHARED_SCOPE) else f"{at}:", arguments[site])
            for launch, at, site in launches
        ]

    def _use(self, launch: int, scope: str, arguments: Sequence[tuple[int, str, str]]) -> _Use:
        use = _Use(launch, {})
        for argument, role, buffer in arguments:
            name = scope + self._storage.get(buffer, buffer)
            use.arguments[argument] = role, name
            if role != "out":
                use.reads.add(name)
            if role != "in":
                use.writes.add(name)
        return use

    def written_by(self, launch: int) -> dict[int, int | None]:
        """Return, for each argument that is read, the launch that wrote its buffer last before this one."""
        found: dict[int, int | None] = {}
        for argument, (role, name) in self._of(launch).arguments.items():
            if role != "out":
                writers = (use.launch for use in reversed(self._uses) if use.launch < launch and name in use.writes)
                found[argument] = next(writers, None)
        return found

    def read_by(self, launch: int) -> dict[int, list[int]]:
        """Return, for each argument that is written, the launches that read its buffer before the next write."""
        found: dict[int, list[int]] = {}
        for argument, (role, name) in self._of(launch).arguments.items():
            if role != "in":
                found[argument] = self._readers(launch, name)
        return found

    def _readers(self, launch: int, name: str) -> list[int]:
        readers: list[int] = []
        for use in self._uses:
            if use.launch > launch:
                if name in use.reads:
                    readers.append(use.launch)
                if name in use.writes:
                    break
        return readers

    def _of(self, launch: int) -> _Use:
        return next(use for use in self._uses if use.launch == launch)


def _storages(trace: Trace, graph: int) -> dict[str, str]:
    return first_names(memory_statements(trace, graph))


def _arguments_of(trace: Trace, *sites: int) -> defaultdict[int, list[tuple[int, str, str]]]:
    """Return (argument, role, buffer) for each argument of a site that is a buffer, with those that it binds."""
    found = sql.rows(
        trace,
        "SELECT site, argument, role, buffer FROM arguments WHERE buffer IS NOT NULL AND list_contains($1, site)"
        " ORDER BY site, argument",
        [list(sites)],
    )
    arguments: defaultdict[int, list[tuple[int, str, str]]] = defaultdict(list)
    for site, argument, role, buffer in found:
        arguments[site].append((argument, role, buffer))
    return arguments
