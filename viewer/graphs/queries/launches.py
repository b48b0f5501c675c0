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
from stepscope.viewer.graphs.queries.step_order import StepOrder, step_order
from stepscope.viewer.steps.rows import LaunchDetail
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.values import call_tree, has_values, launch_values

_LAUNCH = """
    SELECT l.launch, l.log, l.step, l.thread, l.call, c.graph, l.site, l.start_ns, l.duration_ns, l.device_duration_ns,
           l.returned, c.local_call, c.function
    FROM launches l JOIN calls c ON c.call = l.call WHERE l.launch = ?
"""
KEPT = 64
"""Number of graphs, and of kinds of calls, of which an open trace keeps in memory what their launches access."""
_SHARED_SCOPE = ("call", "partition_")


def launch_detail(trace: Trace, launch: int, *, values: bool = True) -> LaunchDetail | None:
    """Return a launch, without its values if `values` is false; None if there is none with that id."""
    found = sql.named(trace, _LAUNCH, [launch])
    if not found:
        return None
    (row,) = found
    graph_id, site_id, local_call, function = (row.pop(name) for name in ("graph", "site", "local_call", "function"))
    call = row["call"]
    step = step_order(trace, row["log"], row["step"])
    graph, site = graph_row(trace, graph_id), site_in_call(trace, graph_id, site_id, local_call)
    assert graph is not None
    symbols = symbols_at(trace, call, launch)
    if row["returned"] is False:
        site = before_return(site)
    functions = call_tree(trace, call, function)
    flow = _flow_of(trace, graph_id, functions, step)
    code = wrapper_code(trace, graph)
    previous_same, next_same = step.neighbours(launch, trace.once(_sites_by_kernel)[site.kernel])
    part = cut(code, site.kernel, site.kind, site.line) if code is not None else None
    read, written = argument_bytes(site.arguments)
    return LaunchDetail(
        **row,
        rank=step.rank,
        of=step.last - step.first + 1,
        ordinal=launch - step.first + 1,
        graph=graph,
        site=in_call(site, symbols),
        step_offset_ns=row["start_ns"] - step.start_ns,
        previous=launch - 1 if launch > step.first else None,
        next=launch + 1 if launch < step.last else None,
        previous_same=previous_same,
        next_same=next_same,
        written_by=flow.written_by(launch),
        read_by=flow.read_by(launch),
        read_bytes=read,
        written_bytes=written,
        config=config_of(trace, graph_id, site.kernel),
        code=part.text if part else None,
        code_first_line=part.first_line if part else None,
        values=launch_values(trace, launch, call, site, functions, flow.launches[0])
        if values and has_values(trace)
        else [],
        symbols=symbols,
    )


def _sites_by_kernel(trace: Trace) -> defaultdict[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for kernel, site in sql.rows(trace, "SELECT kernel, site FROM sites"):
        found[kernel].append(site)
    return found


@dataclass(frozen=True)
class _Use:
    """A launch of a call tree, by its position there, with the buffers that it accesses."""

    arguments: dict[int, tuple[str, str]]
    """Role and buffer of each argument."""
    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)


class _Accesses:
    """The buffers that the launches of a call, and of the calls inside it, write and read. They are the same in each
    call of a graph that runs the same launch sites.

    Names of buffers belong to one function; the partitions of a graph share those of `call`. A name that reuses or
    aliases another stands for the same storage. `callers` are the positions in `functions` of the callers of `sites`.
    """

    def __init__(
        self, trace: Trace, graph: int, functions: Sequence[str], callers: Sequence[int], sites: Sequence[int]
    ) -> None:
        self._storage = trace.once(_storages, graph, most=KEPT)
        arguments = trace.once(_arguments_of, *sorted(set(sites)), most=KEPT)
        self._uses = [
            self._use("" if functions[at].startswith(_SHARED_SCOPE) else f"{at}:", arguments[site])
            for at, site in zip(callers, sites, strict=True)
        ]

    def _use(self, scope: str, arguments: Sequence[tuple[int, str, str]]) -> _Use:
        use = _Use({})
        for argument, role, buffer in arguments:
            name = scope + self._storage.get(buffer, buffer)
            use.arguments[argument] = role, name
            if role != "out":
                use.reads.add(name)
            if role != "in":
                use.writes.add(name)
        return use

    def writers(self, place: int) -> dict[int, int | None]:
        """Return, for each argument that is read, the place of the launch that wrote its buffer last before."""
        found: dict[int, int | None] = {}
        for argument, (role, name) in self._uses[place].arguments.items():
            if role != "out":
                found[argument] = next((at for at in range(place - 1, -1, -1) if name in self._uses[at].writes), None)
        return found

    def readers(self, place: int) -> dict[int, list[int]]:
        """Return, for each argument that is written, the places of those that read its buffer before the next write."""
        uses = self._uses[place].arguments.items()
        return {argument: self._readers(place, name) for argument, (role, name) in uses if role != "in"}

    def _readers(self, place: int, name: str) -> list[int]:
        found: list[int] = []
        for at in range(place + 1, len(self._uses)):
            if name in self._uses[at].reads:
                found.append(at)
            if name in self._uses[at].writes:
                break
        return found


@dataclass(frozen=True)
class _Flow:
    """Which launches of a call write and read the buffers of each other."""

    accesses: _Accesses
    launches: list[int]

    def written_by(self, launch: int) -> dict[int, int | None]:
        found = self.accesses.writers(self.launches.index(launch))
        return {argument: None if at is None else self.launches[at] for argument, at in found.items()}

    def read_by(self, launch: int) -> dict[int, list[int]]:
        found = self.accesses.readers(self.launches.index(launch))
        return {argument: [self.launches[at] for at in places] for argument, places in found.items()}


def _flow_of(trace: Trace, graph: int, functions: dict[int, str], step: StepOrder) -> _Flow:
    """Return the flow of a graph call, given by the functions of the calls in it, which all lie in one step."""
    import numpy as np

    calls = sorted(functions)
    at = step.of_calls(calls)
    callers, sites = np.searchsorted(calls, step.call[at]).tolist(), step.site[at].tolist()
    names = tuple(functions[call] for call in calls)
    accesses = trace.once(_Accesses, graph, names, tuple(callers), tuple(sites), most=KEPT)
    return _Flow(accesses, (at + step.first).tolist())


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
