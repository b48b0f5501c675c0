"""Judges the launches of one call: each right after it has run, so that no tensor has to be kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from stepscope.tracer.inductor import compat
from stepscope.tracer.judge import rule
from stepscope.tracer.judge.fragments import text_of
from stepscope.tracer.judge.integrity import Change, Integrity
from stepscope.tracer.judge.memory import NO_MEMORY, copy_if_possible, is_out_of_memory
from stepscope.tracer.judge.plan import FunctionPlan, Group, LaunchPlan, Written
from stepscope.tracer.judge.recomputation import Recomputation, is_plain, member_of
from stepscope.tracer.judge.stored import StoredValues
from stepscope.tracer.judge.targets import DRAWS, CannotJudge
from stepscope.tracer.judge.verdicts import CallVerdicts, Detail, Unwritten, Verdict

NOT_DIRECT = "it is wrong, or an input is that could not be judged"
ONE_MEMORY = "the launch was given the memory of one buffer for another that it writes"


class Save(NamedTuple):
    """A tensor that a wrong launch has read."""

    site: int
    launch: int
    name: str
    argument: int | None
    """Number of the launch's argument that is this tensor; None if each is a view of it."""
    tensor: Any


class CallJudge:
    """The judge of one call of one function of a wrapper."""

    def __init__(
        self,
        plan: FunctionPlan,
        wants: Callable[[str], bool],
        save: Callable[[Save], str | None] = lambda one: None,
    ) -> None:
        """Create the judge; `wants` selects kernels by name, and `save` writes a tensor and returns the file's name."""
        self._plan, self._wants, self._save = plan, wants, save
        self.result = CallVerdicts()
        self._integrity = Integrity()
        self._parts = plan.stored.record.parts if plan.stored is not None else {}
        self._whole = {part: (whole, whole) for whole, parts in self._parts.items() for part in parts}
        """Variable and buffer of the concatenation to which each part belongs."""
        self._symbols: dict[str, int | float] = {}
        self._given: list[Any] = []
        self._right: set[str] = set()
        """Buffers that were judged to be right, or that hold what a generator drew."""
        self._position = 0
        """Number of launches that have returned, those of subgraphs included."""
        self._sites: list[int] = []
        self._began = 0
        """Site of the launch that began last."""
        self._unsure: set[int] = set()
        """Launches that wrote something which was not judged to be right."""
        self._unknown: set[int] = set()
        """Those among them that wrote to memory of unknown contents which the launch that began last reads."""
        self._read: dict[int, tuple[str, str]] = {}
        """Variable and buffer of what the launch that began last reads, by address."""
        self._lost: set[str] = set()
        """Buffers whose memory a launch was given for another one that it wrote."""
        self._files: dict[int, list[str]] = {}
        """The saved inputs of each launch that was wrong."""

    def enter(self, values: Sequence[Any]) -> None:
        """Learn the symbols from the inputs of the call."""
        stored = self._plan.stored
        if stored is None:
            return
        prefix = f"{stored.record.function}_"
        for variable, value in zip(self._plan.inputs, values, strict=True):
            name = variable.removeprefix(prefix)
            node = stored.nodes.get(name)
            if isinstance(value, (int, float)):
                self._symbols[stored.record.symbols.get(name, name)] = value
                self._symbols[name] = value
            elif node is not None and hasattr(value, "shape"):
                for symbol, size in zip(node.size, value.shape, strict=False):
                    if isinstance(symbol, str) and symbol.isidentifier():
                        self._symbols.setdefault(symbol, int(size))

    def bind(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """Learn symbols that the wrapper has just computed, such as the number of elements that are not zero."""
        self._symbols |= {
            name: value for name, value in zip(names, values, strict=True) if isinstance(value, (int, float))
        }

    def before(self, site: int, values: Sequence[Any]) -> None:
        """Look at what a launch is about to read, and copy what it may change."""
        plan, position = self._plan.launches[site], self._position
        self._given, self._began, self._unknown, self._read = [], site, set(), {}
        read: list[tuple[str, str, Any]] = []
        with _undisturbed():
            written = {
                one.untyped_storage().data_ptr()
                for operand, one in zip(plan.operands, values, strict=True)
                if operand.use in ("out", "inout") and is_plain(one)
            }
            for operand, value in zip(plan.operands, values, strict=True):
                self._given.append(None)
                if not is_plain(value) or operand.use == "out":
                    continue
                if operand.holds is None:
                    if operand.use == "in" and not operand.is_open:
                        self.result.unwritten.append(Unwritten(position, site, operand.variable))
                    self._unknown |= self._integrity.writers_to(value) & self._unsure
                    continue
                if operand.use == "other":
                    if self._integrity.is_unchanged(operand.holds, value):
                        self._given[-1] = value
                    continue
                read.append((operand.variable, operand.holds, value))
                is_own = operand.holds not in self._parts and operand.holds not in self._plan.inputs
                if operand.use == "in" and is_own and value.numel():
                    self._read[value.data_ptr()] = operand.variable, operand.holds
                is_changed = value.untyped_storage().data_ptr() in written and self._wants(plan.kernel)
                self._given[-1] = copy_if_possible(value) if is_changed else value
            self._integrity.look(position, read)

    def after(self, site: int, values: Sequence[Any]) -> None:
        """Judge what a launch has written."""
        plan, position = self._plan.launches[site], self._position
        self._position += 1
        self._sites.append(site)
        if plan.is_subgraph:
            return
        self.result.launches += 1
        try:
            with _undisturbed(plan.may_draw):
                for one in values:
                    if is_plain(one):
                        self._integrity.wrote_to(one, position)
                made = [(one.buffer, member_of(values, one)) for one in plan.written]
                self._integrity.written(position, [one for one in made if is_plain(one[1])])
                why_not = ONE_MEMORY if self._shares_memory(plan, position, values) else None
                self._judge(plan, position, values, why_not)
                if any(one.buffer not in self._right for one in plan.written):
                    self._unsure.add(position)
        finally:
            self.let_go()

    def let_go(self) -> None:
        """Keep no tensor of the program, and no copy of one."""
        self._given = []

    def leave(self, values: Sequence[Any]) -> None:
        """Look at what the call returns, which later calls read."""
        read: list[tuple[str, str, Any]] = []
        with _undisturbed():
            for operand, value in zip(self._plan.results, values, strict=True):
                if not is_plain(value):
                    continue
                if operand.holds is not None:
                    read.append((operand.variable, operand.holds, value))
                elif value.numel() and self._sites and not operand.is_open:
                    last = len(self._sites) - 1
                    self.result.unwritten.append(Unwritten(last, self._sites[last], operand.variable, is_result=True))
            self._integrity.look(None, read)

    def finish(self) -> None:
        """Compare what was read with what had been written; no launch waits for this, as the call has ended."""
        with _undisturbed():
            for launch, change in self._integrity.changes():
                at = launch if launch is not None else change.writer
                at = len(self._sites) - 1 if at is None else at
                if at >= 0:
                    site = self._sites[at] if at < len(self._sites) else self._began
                    self.result.changes.append((at, site, change))

    def _shares_memory(self, plan: LaunchPlan, position: int, values: Sequence[Any]) -> bool:
        """Return whether a launch was given the memory of one buffer for another that it writes, and tell of the first.

        An operator may return what it was given, and a concatenation begins where its first part does; it is told of
        instead of its parts. Inputs may share memory, for which the caller is responsible.
        """
        given = {operand.variable for operand in plan.operands if operand.use in ("out", "inout")}
        places, is_shared = dict(self._read), False
        for written in plan.written:
            value = member_of(values, written)
            if written.variable in given and is_plain(value) and value.numel() and written.buffer not in self._parts:
                variable, buffer = places.setdefault(value.data_ptr(), (written.variable, written.buffer))
                if variable != written.variable:
                    is_shared = True
                    variable, buffer = self._whole.get(buffer, (variable, buffer))
                    if buffer not in self._lost:
                        change = Change(variable, buffer, position, position)
                        self.result.changes.append((position, plan.site, change))
                    self._lost |= {buffer, written.buffer}
        return is_shared

    def _judge(self, plan: LaunchPlan, position: int, values: Sequence[Any], why_not: str | None) -> None:
        """Judge a launch, unless there is a reason why none of its buffers can be."""
        if not self._wants(plan.kernel):
            self.result.not_judged["the kernel was not asked for"] += 1
            return
        found: list[Verdict] = [
            Verdict(position, plan.site, one.variable, one.buffer, None, None, why_not or one.why_not)
            for one in plan.written
            if why_not or one.why_not
        ]
        self._right.update(one.buffer for one in plan.written if (one.why_not or "").endswith(DRAWS))
        for group in plan.groups if why_not is None else ():
            found += self._group(plan, group, position, values)
        self.result.verdicts += found
        if any(one.word != "unjudged" for one in found):
            self.result.judged += 1
        else:
            reasons = [one.why_not for one in found if one.why_not] or ["it writes no buffer that is known"]
            self.result.not_judged[reasons[0]] += 1

    def _group(self, plan: LaunchPlan, group: Group, position: int, values: Sequence[Any]) -> list[Verdict]:
        judging = Recomputation(self._stored(), plan, group, self._given, self._symbols, values)
        found, doubtful = [], self._doubtful(plan)
        for written in group.written:
            assert written.value is not None
            try:
                comparison: rule.Comparison | None = judging.comparison(written)
                why = None
            except CannotJudge as error:
                comparison, why = None, str(error)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                comparison, why = None, NO_MEMORY
            if comparison is not None and not comparison.broken and not (group.is_direct and doubtful):
                self._right.add(written.buffer)
            is_shared = comparison is not None and bool(comparison.broken) and not group.is_direct and bool(doubtful)
            verdict = Verdict(
                position, plan.site, written.variable, written.buffer, written.value.node, comparison,
                NOT_DIRECT if is_shared else why, tuple(sorted(doubtful)) if is_shared else (),
            )  # fmt: skip
            found.append(verdict)
            if comparison is not None and (comparison.broken or comparison.eager_is_off):
                self.result.details.append(self._detail(plan, group, verdict, written, values))
        return found

    def _doubtful(self, plan: LaunchPlan) -> set[int]:
        """Return the launches that wrote what a launch read, and that was not judged to be right."""
        read = {operand.holds for operand in plan.operands if operand.use in ("in", "inout")} - {None}
        members = {one for name in read for one in self._parts.get(str(name), [str(name)])}
        others = members - self._right.union(self._plan.inputs)
        return self._unknown.union(writer for one in others if (writer := self._integrity.writer(one)) is not None)

    def _stored(self) -> StoredValues:
        assert self._plan.stored is not None
        return self._plan.stored

    def _saved_inputs(self, plan: LaunchPlan, launch: int) -> list[str]:
        """Save what a wrong launch has read, once for all of its buffers, and return the files."""
        if launch not in self._files:
            given = zip(plan.operands, self._given, strict=True)
            saves = [Save(plan.site, launch, one.variable, one.argument, tensor)
                     for one, tensor in given if tensor is not None]  # fmt: skip
            self._files[launch] = [path for path in map(self._save, saves) if path is not None]
        return self._files[launch]

    def _detail(
        self, plan: LaunchPlan, group: Group, verdict: Verdict, written: Written, values: Sequence[Any]
    ) -> Detail:
        stored = self._stored()
        operands = plan.operands
        inputs = [(leaf.node, operands[group.leaves[leaf][0]]) for leaf in group.fragment.leaves()]
        files: list[str] = []
        if verdict.found is not None and verdict.found.broken:
            files = self._saved_inputs(plan, verdict.launch)
        nodes = [written.value.node] if written.value is not None else []
        if written.value is not None and written.value.mutations:
            nodes.insert(0, stored.mutators[stored.root(written.value.node)][written.value.mutations - 1])
        sources = [stored.nodes[name].source for name in [*nodes, *reversed(group.fragment.nodes())]]
        value = member_of(values, written)
        return Detail(
            verdict,
            text_of(stored, group.fragment),
            [f"{node} in {operand.variable}" for node, operand in inputs],
            next((one for one in sources if one is not None), None),
            str(value.dtype).removeprefix("torch."),
            list(value.shape),
            files,
        )


@contextmanager
def _undisturbed(may_draw: bool = False) -> Iterator[None]:
    """Hide what is done inside from the program: its modes, autograd and autocast, and random draws of all devices."""
    from stepscope.tracer.inductor import eager_runs

    with compat.undisturbed():
        states = eager_runs.generator_states() if may_draw else None
        try:
            yield
        finally:
            if states is not None and not eager_runs.states_equal(states, eager_runs.generator_states()):
                eager_runs.set_generators(states)
