"""Queries for the flow of values through the launches of a call: the rows that each launch read and wrote."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from stepscope.viewer.graphs.queries.graphs import memory_statements
from stepscope.viewer.graphs.rows import MemoryStatementRow
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.values import COLUMNS, StoredValue, last_before, value_rows
from stepscope.viewer.values.rows import ValueRow

_LAUNCHES = "SELECT launch, site, step, log FROM launches WHERE call = ? ORDER BY launch"
_ARGUMENTS = """
    SELECT site, argument, name, role, coalesce(buffer, name), coalesce(storage, buffer, name), held, version_site,
           version_argument, version_moment, version_item
    FROM arguments WHERE list_contains(?, site) ORDER BY site, argument
"""
_CALL = "SELECT call, graph, function, parent, log FROM calls WHERE call = ?"
_INNER = """
    SELECT c.call FROM calls c JOIN launches l ON l.launch = $1
    WHERE c.parent = l.call AND c.start_ns >= l.start_ns
      AND (l.duration_ns IS NULL OR c.start_ns <= l.start_ns + l.duration_ns)
    ORDER BY c.start_ns
"""
_STARTS_MEMORY = ("allocate", "pool", "pool_member", "reuse", "alias", "item")


@dataclass(frozen=True)
class FlowArgument:
    argument: int
    name: str
    role: str
    buffer: str
    storage: str
    held: str | None
    before: list[ValueRow]
    """Rows of its values when the launch began; empty if they were not read."""
    source: list[ValueRow]
    """Rows of the version that the launch read, without those that were read at this launch."""
    after: list[ValueRow]
    is_own: bool = False
    """Whether the launch writes the memory itself that it reads and that nothing wrote before: parts of it, as views
    that it concatenates."""


@dataclass(frozen=True)
class Flow:
    """A launch with the values of its arguments."""

    launch: int
    site: int
    step: int
    log: int
    call: int
    arguments: list[FlowArgument]

    @property
    def inputs(self) -> list[FlowArgument]:
        return [argument for argument in self.arguments if argument.role != "out"]

    @property
    def outputs(self) -> list[FlowArgument]:
        return [argument for argument in self.arguments if argument.role != "in"]


@dataclass(frozen=True)
class CallFlow:
    call: int
    graph: int
    function: str
    parent: int | None
    launches: dict[int, Flow]
    """Launches by id, in order of execution."""
    inputs: list[FlowArgument]
    """Inputs of the call that no launch site names."""


class Flows:
    """The flows of calls. Each call is read once."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._calls: dict[int, CallFlow] = {}
        self._kept: dict[int, Callable[[str], bool]] = {}

    def of_launch(self, launch: int) -> Flow:
        call = sql.number(self.trace, "SELECT call FROM launches WHERE launch = ?", [launch])
        return self.of_call(call).launches[launch]

    def of_call(self, call: int) -> CallFlow:
        if call not in self._calls:
            self._calls[call] = _call_flow(self.trace, call)
        return self._calls[call]

    def inner_calls(self, launch: int) -> list[int]:
        """Return the calls that ran during `launch`, which may call a subgraph."""
        return [call for (call,) in sql.rows(self.trace, _INNER, [launch])]

    def leaves(self, call: int, is_bad: Callable[[ValueRow], bool]) -> bool:
        """Return whether the graph call of which `call` is a part leaves a bad value in an input, or in memory that it
        does not free."""
        flow = self.of_call(call)
        while flow.parent is not None and self.of_call(flow.parent).graph == flow.graph:
            if self._leaves(flow, is_bad) and flow.function.startswith("partition_"):
                return True
            flow = self.of_call(flow.parent)
        return self._leaves(flow, is_bad)

    def _leaves(self, flow: CallFlow, is_bad: Callable[[ValueRow], bool]) -> bool:
        if flow.graph not in self._kept:
            self._kept[flow.graph] = kept(memory_statements(self.trace, flow.graph))
        keeps = self._kept[flow.graph]
        last: dict[str, FlowArgument] = {}
        inputs: set[str] = set()
        for launch in flow.launches.values():
            for argument in launch.arguments:
                if argument.held == "input":
                    inputs.add(argument.storage)
            for argument in launch.outputs:
                if argument.after:
                    last[argument.storage] = argument
        return any(
            (name in inputs or keeps(name) or keeps(argument.buffer)) and any(is_bad(row) for row in argument.after)
            for name, argument in last.items()
        )


def kept(statements: list[MemoryStatementRow]) -> Callable[[str], bool]:
    """Return a function that tells whether the memory of a name still has a name at the end of its function."""
    first: dict[str, str] = {}
    alive: defaultdict[str, set[str]] = defaultdict(set)
    freed: set[str] = set()
    for statement in statements:
        if statement.event in ("reuse", "alias") and statement.of is not None:
            first[statement.buffer] = first.get(statement.of, statement.of)
        memory = first.get(statement.buffer, statement.buffer)
        if statement.event in _STARTS_MEMORY:
            alive[memory].add(statement.buffer)
        elif statement.event == "free":
            alive[memory].discard(statement.buffer)
            freed.add(memory)
    gone = {memory for memory in freed if not alive[memory]}
    return lambda name: first.get(name, name) not in gone


def _call_flow(trace: Trace, call: int) -> CallFlow:
    _, graph, function, parent, log = sql.row(trace, _CALL, [call]) or (call, -1, "", None, 0)
    launches = sql.rows(trace, _LAUNCHES, [call])
    of_call = f"SELECT {COLUMNS} FROM value_rows v WHERE v.call = ? ORDER BY v.value"
    rows = value_rows(trace, sql.records(StoredValue, trace, of_call, [call]))
    own: defaultdict[tuple[int, int, str], list[ValueRow]] = defaultdict(list)
    by_place: defaultdict[tuple[int, int, str], list[ValueRow]] = defaultdict(list)
    for row in rows:
        own[row.launch, row.argument, row.moment].append(row)
        by_place[row.site, row.argument, row.moment].append(row)
    arguments: defaultdict[int, list[sql.Row]] = defaultdict(list)
    for site, *rest in sql.rows(trace, _ARGUMENTS, [sorted({site for _, site, _, _ in launches})]):
        arguments[site].append(tuple(rest))
    flows = {}
    for launch, site, step, _ in launches:
        found = []
        own_memory = {storage for _, _, role, _, storage, *_ in arguments[site] if role != "in"}
        for argument, name, role, buffer, storage, held, *version in arguments[site]:
            before, after = own[launch, argument, "before"], own[launch, argument, "after"]
            *written_at, item = version
            source = last_before(by_place.get(tuple(written_at), []), launch, item) if role != "out" else []
            source = [row for row in source if row not in before]
            is_own = role == "in" and held == "uninitialised" and storage in own_memory
            before = before or source
            found.append(FlowArgument(argument, name, role, buffer, storage, held, before, source, after, is_own))
        flows[launch] = Flow(launch, site, step, log, call, found)
    return CallFlow(call, graph, function, parent, flows, _inputs(trace, call))


def _inputs(trace: Trace, call: int) -> list[FlowArgument]:
    names: dict[int, str] = dict(
        sql.rows(trace, "SELECT argument, name FROM input_rows WHERE call = ? ORDER BY value", [call])
    )
    if not names:
        return []
    of_inputs = f"SELECT {COLUMNS} FROM input_rows v WHERE v.call = ?"
    rows = value_rows(trace, sql.records(StoredValue, trace, of_inputs, [call]))
    return [
        FlowArgument(
            argument, name, "in", name, name, "input", [row for row in rows if row.argument == argument], [], []
        )
        for argument, name in names.items()
    ]
