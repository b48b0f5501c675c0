"""Recomputes the buffers that a launch wrote, and compares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from typing import Any

from stepscope.tracer.judge import once, rule
from stepscope.tracer.judge.evaluate import (
    DOUBLE,
    IN_ORDER,
    SAME,
    Mode,
    Reason,
    Run,
)
from stepscope.tracer.judge.expressions import number_of
from stepscope.tracer.judge.in_order import is_loop
from stepscope.tracer.judge.moves import Move, downward, random_moves, upward
from stepscope.tracer.judge.plan import Group, LaunchPlan, Written
from stepscope.tracer.judge.record import Place
from stepscope.tracer.judge.rounding import Rounding
from stepscope.tracer.judge.stored import StoredValues, Value
from stepscope.tracer.judge.targets import CannotJudge, decides, is_exact, leaves_open, spacing_of

MOVES = (
    (random_moves(1), 1.0),
    (upward, 1.0),
    (downward, 1.0),
    (random_moves(2), 1.0),
    (random_moves(3), 1.0),
    (random_moves(4), rule.DECIDED),
    (upward, rule.DECIDED),
    (downward, rule.DECIDED),
)
"""Ways in which inputs are moved, in the order in which they are used, with the multiple of half a unit."""


FAR = (upward, downward, *map(random_moves, range(5, 19)))
"""Ways in which inputs are moved to find decisions that rounding may change: the more, the fewer are overlooked."""
UNDECIDED = "rounding decides each of its elements, as where numbers are compared that are nearly equal or NaN"


class Recomputation:
    """The evaluation of one group in the modes that the verdicts need; each is done once."""

    def __init__(
        self,
        stored: StoredValues,
        launch: LaunchPlan,
        group: Group,
        given: Sequence[Any],
        symbols: Mapping[str, int | float],
        after: Sequence[Any],
    ) -> None:
        self._stored, self._launch, self._group, self._given, self._symbols = stored, launch, group, given, symbols
        self._after = after
        self._done: dict[str, Mapping[Value, Any]] = {}
        """Values by mode."""
        self._apart: dict[Value, Any] = {}
        """Where a value depends on a decision that rounding may change, or on memory that the program leaves open."""

    @cached_property
    def _spacings(self) -> dict[str, float]:
        """The spacings of what is computed, by node."""
        nodes = self._stored.nodes
        return {name: spacing_of(nodes[name].dtype) for name in {*self._group.fragment.nodes(), *self._targets}}

    @cached_property
    def _targets(self) -> set[str]:
        return {one.value.node for one in self._group.written if one.value is not None}

    @cached_property
    def _spacing(self) -> float:
        return max(self._spacings.values(), default=0.0)

    @cached_property
    def _distance(self) -> float:
        """How far inputs are moved: rounding in between is that of the values in between, not of inputs and results."""
        between = [one for name, one in self._spacings.items() if name not in self._targets and one > 0.0]
        return max(between, default=self._spacing) / 2

    @cached_property
    def _rounding(self) -> Rounding:
        if self._spacing <= once.FLOAT32_SPACING or self._has_read_rounded:
            return "anywhere"
        is_known = all(one.value is not None for one, dtype in self._stores if spacing_of(dtype) > once.FLOAT32_SPACING)
        return "between" if self._launch.rounding == "stored" and not is_known else self._launch.rounding

    @property
    def _has_read_rounded(self) -> bool:
        """Whether it follows from values that other launches may have rounded in between."""
        if self._group.is_direct:
            return False
        known = {position for position, _ in self._group.leaves.values()}
        others = [one for n, one in enumerate(self._given) if n not in known and self._launch.operands[n].use != "out"]
        return any(one is None or one.dtype.itemsize < 4 for one in others)

    @cached_property
    def _stores(self) -> list[tuple[Written, str]]:
        """The buffers that the launch writes, and their dtypes."""
        members = ((one, member_of(self._after, one)) for one in self._launch.written)
        return [(one, str(value.dtype).removeprefix("torch.")) for one, value in members if is_plain(value)]

    @cached_property
    def _is_exact(self) -> bool:
        """Whether no value in between is rounded, so that moved inputs tell nothing."""
        return all(is_exact(self._stored.nodes[name].target) for name in self._group.fragment.nodes())

    @cached_property
    def _has_loops(self) -> bool:
        return any(is_loop(self._stored.nodes[name].target) for name in self._group.fragment.nodes())

    @cached_property
    def _has_open_memory(self) -> bool:
        return any(leaves_open(self._stored.nodes[name].target) for name in self._group.fragment.nodes())

    @cached_property
    def _decides(self) -> bool:
        """Whether results may jump if what they follow from is rounded otherwise."""
        nodes = self._stored.nodes
        return not self._is_exact and any(
            decides(nodes[name].target, nodes[name].dtype) for name in self._group.fragment.nodes()
        )

    def comparison(self, written: Written) -> rule.Comparison:
        """Compare one buffer. Raises CannotJudge."""
        assert written.value is not None
        assert written.place is not None
        value = member_of(self._after, written)
        if not is_plain(value):
            raise CannotJudge("the buffer is no plain tensor")
        compiled = self._part(value, written.place)
        eager = self._target("same", SAME, written.value)
        if tuple(eager.shape) != tuple(compiled.shape):
            raise CannotJudge(f"the reference has the size {list(eager.shape)}, and the buffer {list(compiled.shape)}")
        if self._has_open_memory:
            self._apart[written.value] = ~rule.are_same(eager, self._target("filled", Mode(fill=1), written.value))
        found = self._compared(compiled, written.value)
        if found.broken and self._decides and not compiled.is_complex():
            found = self._where_decided(found, compiled, written.value)
        if found.broken and any(self._is_no_truth(leaf) for leaf in self._group.leaves):
            raise CannotJudge(
                "it follows from truth values that are neither 0 nor 1, which compiled code may read as either"
            )
        return found

    def _compared(self, compiled: Any, value: Value) -> rule.Comparison:
        if value in self._apart:
            compiled = compiled.masked_fill(self._apart[value], 0)
        eager = self._target("same", SAME, value).to(compiled.dtype)
        if rule.equal(compiled, eager):
            return rule.Comparison("equal")
        found = self._rounded_once(compiled, eager, value) if self._rounding == "stored" else None
        if found is None and not (compiled.is_cuda and "double" in self._done):  # there one kernel takes float64
            found = rule.near(compiled, eager, self._spacing)
        return found or self._by_double(compiled, eager, value)

    def _where_decided(self, found: rule.Comparison, compiled: Any, value: Value) -> rule.Comparison:
        """Compare a buffer anew without the elements on which a decision depends that rounding may change."""
        double, is_loop = self._target("double", DOUBLE, value), self._launch.rounding != "anywhere"
        distance = (self._distance if self._rounding == "anywhere" else once.FLOAT32_SPACING / 2) * rule.DECIDED
        unit = once.FLOAT32_SPACING if self._rounding == "stored" else 0.0
        between = rule.DECIDED if is_loop else 0.0
        modes = [Mode(True, move, distance, between, unit, ties=2 * distance) for move in FAR]
        modes += [Mode(double=True, in_order=True)] * self._has_loops
        far = (self._evaluated(mode)[value] for mode in modes)  # one after the other, as all need much memory
        others = self._once(value, False, once.ALL) if self._rounding == "stored" else []
        apart = rule.undecided(double, self._moved(value, rule.FEW), chain(others, far), compiled.dtype)
        if not bool(apart.any()):
            return found
        if bool(apart.all()):
            raise CannotJudge(UNDECIDED)
        self._apart[value] = apart | self._apart[value] if value in self._apart else apart
        found = self._compared(compiled, value)
        return found if found.broken else replace(found, how="moved")

    def _is_no_truth(self, value: Value) -> bool:
        """Return whether a leaf has booleans of other bits, as memory that was not written may have."""
        import torch

        tensor = self._given[self._group.leaves[value][0]]
        return is_plain(tensor) and tensor.dtype == torch.bool and bool((tensor.view(torch.uint8) > 1).any())

    def _by_double(self, compiled: Any, eager: Any, value: Value) -> rule.Comparison:
        found = self._by_double_that(False, compiled, eager, value)
        if not found.broken:
            return found
        rounded = self._by_double_that(True, compiled, eager, value)  # generated code may do either
        return found if rounded.broken else rounded

    def _by_double_that(self, rounds: bool, compiled: Any, eager: Any, value: Value) -> rule.Comparison:
        """Compare a buffer with float64 whose numbers are rounded or not."""
        double = self._target("double rounded" if rounds else "double", replace(DOUBLE, rounds_numbers=rounds), value)
        moved, in_order = (
            (lambda count: self._moved(value, count, rounds)),
            (lambda: self._in_order(value, tuple(double.shape))),
        )
        return rule.compare(compiled, eager, double, moved, self._spacing, in_order)

    def _rounded_once(self, compiled: Any, eager: Any, value: Value) -> rule.Comparison | None:
        """Compare a buffer with float64 by the narrower rule; None where the wider one has to decide."""
        found = None
        try:
            for rounds in (False, True):  # generated code may do either
                double = self._target(f"double{' rounded' * rounds}", Mode(double=True, rounds_numbers=rounds), value)
                others = partial(self._once, value, rounds)
                compared = once.compare(compiled, eager, double, others)
                if compared is None or not compared.broken:
                    return compared
                found = found or compared
        except CannotJudge:
            return None
        return found

    def _once(self, value: Value, rounds: bool, count: int) -> list[Any]:
        """Return float64 values: moved by what float32 rounds, and with rounded stores; the first mostly suffices."""
        import torch

        held = ((value, dtype) for one, dtype in self._stores for value, _ in self._stored.held.get(one.buffer, ()))
        stored = {
            value: getattr(torch, dtype) for value, dtype in held if self._stored.nodes[value.node].dtype == dtype
        }
        modes = [Mode(double=True, stored=stored, rounds_numbers=rounds)]
        for move, times in MOVES[: rule.FEW]:
            distance = once.FLOAT32_SPACING / 2 * times
            modes.append(Mode(True, move, distance, times, unit=once.FLOAT32_SPACING, rounds_numbers=rounds))
        modes.insert(0, modes.pop(1))
        if self._has_loops:
            modes.append(Mode(double=True, in_order=True, rounds_numbers=rounds))
        return [self._target(f"once {number} {rounds}", mode, value) for number, mode in enumerate(modes[:count])]

    def _moved(self, value: Value, count: int, rounds: bool = False) -> list[Any]:
        if not self._spacing or self._is_exact:
            return []
        name, modes = f"moved{' rounded' * rounds}", [self._mode(*one) for one in MOVES[:count]]
        return [self._target(f"{name} {n}", replace(one, rounds_numbers=rounds), value) for n, one in enumerate(modes)]

    def _mode(self, move: Move, times: float) -> Mode:
        if self._rounding != "anywhere":
            return Mode(double=True, move=move, distance=once.FLOAT32_SPACING / 2 * times, between=times)
        return Mode(double=True, move=move, distance=self._distance * times)

    def _in_order(self, value: Value, shape: tuple[int, ...]) -> Any:
        if not self._has_loops:
            return None
        found = self._target("in order", IN_ORDER, value)
        return found if tuple(found.shape) == shape else None

    def _target(self, name: str, mode: Mode, value: Value) -> Any:
        if name not in self._done:
            self._done[name] = self._evaluated(mode)
        result = self._done[name][value]
        if isinstance(result, Reason):
            raise CannotJudge(result)
        if not hasattr(result, "dtype"):
            raise CannotJudge("the reference is no tensor")
        apart = self._apart.get(value)
        return result if apart is None or apart.shape != result.shape else result.masked_fill(apart, 0)

    def _evaluated(self, mode: Mode) -> Mapping[Value, Any]:
        device = next((one.device for one in self._after if hasattr(one, "device")), "cpu")
        run = Run(self._stored, self._group.fragment, self._leaf, self._symbols, device, mode)
        return run.targets()

    def _leaf(self, value: Value) -> Any:
        position, place = self._group.leaves[value]
        tensor = self._given[position]
        if tensor is None:
            raise CannotJudge(f"the buffer of {value.node} was overwritten, or there was not enough memory to copy it")
        return self._part(tensor, place)

    def _part(self, tensor: Any, place: Place) -> Any:
        """Return the part of a buffer that a place describes; sizes that are not known are those of the buffer."""
        if place.offset == 0 and place.size == list(tensor.shape) and place.stride == list(tensor.stride()):
            return tensor
        offset = int(number_of(place.offset, self._symbols))
        try:
            size = [int(number_of(one, self._symbols)) for one in place.size]
            stride = [int(number_of(one, self._symbols)) for one in place.stride]
        except CannotJudge:
            return tensor
        try:
            return tensor.as_strided(size, stride, tensor.storage_offset() + offset)
        except RuntimeError as error:
            if not tensor.numel():  # an operator may return nothing where its meta function returns something
                return tensor
            raise CannotJudge(f"the buffer has another form than the compiler recorded: {error}") from None


def member_of(values: Sequence[Any], written: Written) -> Any:
    value = values[written.position]
    if written.item is None or not isinstance(value, (list, tuple)):
        return value
    return value[written.item] if written.item < len(value) else None


def is_plain(value: Any) -> bool:
    import torch

    return type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided
