"""Decides, before a graph runs, what is read around each of its launches and how each written buffer is recomputed."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from stepscope.tracer.judge.fragments import Fragment, fragment_of
from stepscope.tracer.judge.record import GraphRecord, Place
from stepscope.tracer.judge.rounding import Rounding, roundings_of
from stepscope.tracer.judge.stored import StoredValues, Value
from stepscope.tracer.judge.targets import CannotJudge
from stepscope.tracer.schema.graphs import MemoryStatement
from stepscope.tracer.wrapper.parsed import LaunchStatement, WrapperSource, wrapper_functions

NO_PLACE = "it holds no value of the graph: the kernel uses it for itself"
UNKNOWN_WRITER = "what the launch computes is not known"
NO_RECORD = "the compiler's record of the graph is missing; `stepscope run --fresh-cache` compiles it again"
Use = Literal["in", "inout", "out", "other"]
"""``other`` is a live buffer that the launch does not use, but whose value its own follows from."""


@dataclass(frozen=True)
class Operand:
    variable: str
    use: Use
    holds: str | None
    """Buffer whose contents the variable has before the launch; None if nothing was written there."""
    is_open: bool = False
    """Whether the program itself may leave the contents open."""
    argument: int | None = None
    """Number of the launch's argument that is this variable as it stands; None if each is a view of it."""


@dataclass
class Written:
    """A buffer that a launch writes."""

    position: int
    """Position among the values after the launch."""
    item: int | None
    """Index into the value, which is a tuple."""
    variable: str
    buffer: str
    value: Value | None = None
    place: Place | None = None
    why_not: str | None = None
    """Reason why the buffer cannot be judged; None if it can."""


@dataclass
class Group:
    """Written buffers that one evaluation recomputes."""

    fragment: Fragment
    written: list[Written]
    leaves: dict[Value, tuple[int, Place]]
    """The operand that holds each leaf, and the part of it."""
    is_direct: bool = True
    """Whether the leaves are what the launch read. Else they are older values, since it read a buffer that holds no
    value of the graph, and an error may be that of the launch which wrote what was read."""


@dataclass
class LaunchPlan:
    site: int
    kernel: str
    operands: list[Operand] = field(default_factory=list)
    rounding: Rounding = "anywhere"
    is_subgraph: bool = False
    """Whether it calls another function of the wrapper, whose launches are judged by themselves."""
    after: list[str] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    may_draw: bool = False
    """Whether the recomputation calls operators that may draw random numbers: those that are not PyTorch's own."""


@dataclass
class FunctionPlan:
    """The plan of one function of a wrapper."""

    stored: StoredValues | None
    entry: ast.stmt | None = None
    inputs: list[str] = field(default_factory=list)
    launches: dict[int, LaunchPlan] = field(default_factory=dict)
    """The launches by their site."""
    results: list[Operand] = field(default_factory=list)
    """What the function returns at `leave`."""
    leave: ast.stmt | None = None
    statements: dict[int, ast.stmt] = field(default_factory=dict)


def plans_of(
    source: WrapperSource, records: Sequence[GraphRecord], snodes: Mapping[int, list[str]]
) -> list[FunctionPlan]:
    """Return the plan of each function of a wrapper, in their order.

    `records` are those of the graph and its subgraphs, and `snodes` the operations of the schedule that each launch
    site computes.
    """
    stored = {record.function: StoredValues(record) for record in records}
    roundings = roundings_of(source.tree)
    plans = []
    for _, function in wrapper_functions(source.tree):
        own = stored.get(function.name, stored.get(None))
        planner = _Planner(source, FunctionPlan(own), snodes, roundings)
        planner.follow(function)
        plans.append(planner.plan)
    return plans


class _Planner:
    def __init__(
        self,
        source: WrapperSource,
        plan: FunctionPlan,
        snodes: Mapping[int, list[str]],
        roundings: Mapping[str, Rounding],
    ) -> None:
        self.source, self.plan, self.snodes = source, plan, snodes
        self.stored = plan.stored
        self.roundings = roundings
        self.holds: dict[str, str | None] = {}
        """The buffer whose contents each variable has."""
        self.stale: set[str] = set()
        """Variables whose memory was taken over from another buffer and not written since."""
        self.complete: set[str] = set()
        self.tuples: dict[str, LaunchPlan] = {}
        """The launches that returned the tuple of each name."""

    def follow(self, function: ast.FunctionDef) -> None:
        self._entry(function.body)
        self._block(function.body)
        for launch in self.plan.launches.values():
            self._judge(launch)

    def _entry(self, body: list[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, ast.Assign) and ast.unparse(statement.value) in ("args", "partition_args"):
                target = statement.targets[0]
                self.plan.entry = statement
                self.plan.inputs = [node.id for node in ast.walk(target) if isinstance(node, ast.Name)]
                self.holds |= {name: name for name in self.plan.inputs}
                return

    def _block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            events = self.source.events.get(statement, [])
            if isinstance(statement, ast.Return) and not events and statement is body[-1]:
                self._leave(statement)
            for event in events:
                if isinstance(event, LaunchStatement):
                    self._launch(event)
                else:
                    self._memory(event, statement)
            for name in ("body", "orelse", "finalbody"):
                self._block(getattr(statement, name, None) or [])

    def _leave(self, statement: ast.Return) -> None:
        names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        held = ((name, None if name in self.stale else self.holds[name]) for name in sorted(names & self.holds.keys()))
        self.plan.leave = statement
        self.plan.results = [Operand(name, "in", buffer, self._is_open(name)) for name, buffer in held]

    def _kind(self, buffer: str) -> tuple[str, str]:
        found = self.stored.buffers.get(buffer) if self.stored is not None else None
        return (found.kind, found.layout) if found is not None else ("", "")

    def _memory(self, event: MemoryStatement, statement: ast.stmt) -> None:
        name, of = event.buffer, event.of
        if event.event in ("allocate", "pool", "pool_member"):
            self.holds[name] = None
        elif event.event in ("free", "drop"):
            self.holds.pop(name, None)
        elif event.event in ("reuse", "alias", "item") and of is not None:
            kind, layout = self._kind(name)
            value = statement.value if isinstance(statement, ast.Assign) else None
            if of in self.tuples and (event.event == "item" or kind == "MultiOutput"):
                self._item(self.tuples[of], name, of, value)
            elif event.event == "alias" and layout == "NonOwningLayout":
                self.holds[name] = None
                if self.holds.get(of) != of:  # the memory of an older buffer gets new parts
                    self.holds[of] = None
            elif event.event == "item":
                self.holds[name] = name
            else:
                self.holds[name] = self.holds.get(of, of)
                if event.event == "reuse" and kind:
                    self.stale.add(name)

    def _item(self, launch: LaunchPlan, name: str, of: str, value: ast.expr | None) -> None:
        """Add a member of what a launch returned to the buffers that it has written."""
        index = value.slice if isinstance(value, ast.Subscript) else None
        item = index.value if isinstance(index, ast.Constant) and isinstance(index.value, int) else None
        launch.written.append(Written(launch.after.index(of), item, name, name))
        self.holds[name] = name

    def _launch(self, launch: LaunchStatement) -> None:
        kernel = launch.site.kernel
        rounding = self.roundings.get(kernel, "anywhere")
        found = LaunchPlan(launch.site.site, kernel, rounding=rounding, is_subgraph=launch.site.kind == "subgraph")
        self.plan.launches[found.site], self.plan.statements[found.site] = found, launch.statement
        uses: dict[str, Use] = {}
        whole: dict[str, int] = {}
        for number, argument in enumerate(launch.site.arguments[: len(launch.expressions)]):
            name = (argument.buffer or "").partition("[")[0]
            if name.isidentifier():
                role = argument.role
                uses[name] = role if uses.get(name, role) == role else "inout"
                if argument.name == name:
                    whole.setdefault(name, number)
        for name, use in uses.items():
            is_stale = name in self.stale and use == "in"
            buffer = None if is_stale else self.holds.get(name, name)
            found.operands.append(Operand(name, use, buffer, self._is_open(name), whole.get(name)))
        outputs = self._outputs(found.site)
        for name in [*(name for name, use in uses.items() if use != "in"), *launch.bound]:
            if not name.isidentifier():
                continue
            found.after.append(name)
            self._writes(found, name, outputs)
        launches = [one for one in self.holds.items() if one[1] is not None]
        found.operands += [Operand(name, "other", buffer) for name, buffer in launches if name not in uses
                           and name not in found.after]  # fmt: skip

    def _is_open(self, name: str) -> bool:
        """Return whether a buffer may be unwritten: a concatenation has parts, and a program may want open memory."""
        stored = self.stored
        return stored is not None and (name in stored.record.parts or stored.may_be_unwritten(name))

    def _outputs(self, site: int) -> list[str]:
        if self.stored is None:
            return []
        outputs = self.stored.record.outputs
        return [buffer for snode in self.snodes.get(site, []) for buffer in outputs.get(snode, [])]

    def _writes(self, launch: LaunchPlan, name: str, outputs: list[str]) -> None:
        real = {one: self.stored.buffers[one].real for one in outputs} if self.stored is not None else {}
        candidates = [one for one in outputs if name in (one, real.get(one))]  # the last one is what is left there
        buffer = candidates[-1] if candidates else name
        if self._kind(buffer)[1] == "MultiOutputLayout":
            self.tuples[name] = launch
            return
        launch.written.append(Written(len(launch.after) - 1, None, name, buffer))
        self.holds[name] = buffer
        self.stale.discard(name)
        self.complete.add(buffer)
        for whole, parts in (self.stored.record.parts if self.stored is not None else {}).items():
            if buffer in parts and self.complete.issuperset(parts):
                self.holds[whole] = whole
                self.stale.discard(whole)

    # How the buffers are recomputed.

    def _judge(self, launch: LaunchPlan) -> None:
        if launch.is_subgraph:
            launch.written.clear()
            return
        read = self._leaves(launch, ("in", "inout"))
        by_inputs: list[Written] = []
        others: list[Group] = []
        for written in launch.written:
            self._find_value(written)
            if written.why_not is not None or written.value is None:
                continue
            assert self.stored is not None
            try:
                fragment_of(self.stored, [written.value], read.__contains__)
                by_inputs.append(written)
            except CannotJudge as first:
                try:
                    leaves = read | self._leaves(launch, ("other",))
                    fragment = fragment_of(self.stored, [written.value], leaves.__contains__)
                    others.append(Group(fragment, [written], leaves, is_direct=False))
                except CannotJudge:
                    written.why_not = str(first)
        if by_inputs and self.stored is not None:
            launch.groups += self._groups(by_inputs, read)
        launch.groups += others
        nodes = {name for group in launch.groups for name in group.fragment.nodes()}
        launch.may_draw = any(self._may_draw(name) for name in nodes)
        used = {leaves[leaf][0] for group in launch.groups for leaf in group.fragment.leaves()
                for leaves in (group.leaves,)}  # fmt: skip
        keep = [n for n, operand in enumerate(launch.operands) if operand.use != "other" or n in used]
        moved = {old: new for new, old in enumerate(keep)}
        launch.operands = [launch.operands[n] for n in keep]
        for group in launch.groups:
            group.leaves = {value: (moved[n], place) for value, (n, place) in group.leaves.items() if n in moved}

    def _groups(self, written: list[Written], read: dict[Value, tuple[int, Place]]) -> list[Group]:
        """Return one group for all buffers, or one for each if that would have too many steps."""
        assert self.stored is not None
        try:
            targets = [one.value for one in written if one.value is not None]
            return [Group(fragment_of(self.stored, targets, read.__contains__), written, read)]
        except CannotJudge:
            if len(written) == 1:
                raise
            return [group for one in written for group in self._groups([one], read)]

    def _may_draw(self, node: str) -> bool:
        assert self.stored is not None
        stored = self.stored
        targets = [stored.nodes[one].target for one in (node, *stored.mutators.get(stored.root(node), ()))]
        return not all(target.startswith(("op:aten.", "op:prims.", "function:")) for target in targets)

    def _find_value(self, written: Written) -> None:
        if self.stored is None:
            written.why_not = NO_RECORD
            return
        held = self.stored.held.get(written.buffer, [])
        if not held:
            is_known = written.buffer in self.stored.buffers
            written.why_not = NO_PLACE if is_known else UNKNOWN_WRITER
            return
        written.value, written.place = held[0]

    def _leaves(self, launch: LaunchPlan, uses: tuple[Use, ...]) -> dict[Value, tuple[int, Place]]:
        found: dict[Value, tuple[int, Place]] = {}
        if self.stored is None:
            return found
        for position, operand in enumerate(launch.operands):
            if operand.use in uses and operand.holds is not None:
                for value, place in self.stored.held.get(operand.holds, []):
                    found.setdefault(value, (position, place))
        return found
