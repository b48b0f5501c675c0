"""Runs a fragment of a graph with PyTorch's own operators, in one of four modes.

``same`` uses the dtypes of the graph; ``double`` uses float64 for every floating point dtype; ``moved`` does so with
each input moved by up to half a unit in the last place, which shows how much rounding may change the result, and, if
asked, so is each value in between, by the unit of its own dtype;
``in_order`` is ``same``, or ``double``, with sums and functions that are computed as in kernels. Nothing that is given
is changed: an operator that writes gets a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from stepscope.tracer.judge import philox
from stepscope.tracer.judge.attention import in_double
from stepscope.tracer.judge.choices import are_equal, with_other_nan
from stepscope.tracer.judge.expressions import number_of
from stepscope.tracer.judge.fragments import Fragment, Step
from stepscope.tracer.judge.in_order import in_order, is_loop
from stepscope.tracer.judge.memory import NO_MEMORY, copied, is_out_of_memory
from stepscope.tracer.judge.moves import Move, downward
from stepscope.tracer.judge.record import members_of, node_of, nodes_in
from stepscope.tracer.judge.stored import LOW, StoredValues, Value, written_nodes
from stepscope.tracer.judge.targets import (
    CannotJudge,
    calls_with_what_shares,
    decides,
    doubled,
    function_of,
    is_exact,
    leaves_open,
    quick_function_of,
    spacing_of,
    tensor_of,
    written_arguments,
)

NOT_IN_DOUBLE = ("op:aten.view.dtype", "op:prims.view_of_dtype")
"""Operators whose result depends on the bits of a dtype."""
CONVERT = "op:prims.convert_element_type.default"
"""Operator whose implementation in Python takes as long as ten others."""
WIDE = ("float32", "float64")
VARIANCES = ("op:aten.var.", "op:aten.var_mean.")


@dataclass(frozen=True)
class Mode:
    """How values are computed."""

    double: bool = False
    move: Move | None = None
    """None to use inputs as they are."""
    distance: float = 0.0
    between: float = 0.0
    """Multiple of half a spacing by which each value is moved that is rounded in between."""
    unit: float = 0.0
    """That spacing at 1; 0 for the one of the value's dtype."""
    stored: Mapping[Value, Any] = field(default_factory=dict)
    """Values that later steps read as if they had been rounded to a dtype."""
    in_order: bool = False
    """Whether sums, means and some functions are those of kernels."""
    fill: int = 0
    """What memory holds whose contents the program leaves open."""
    ties: float | None = None
    """Relative distance within which two numbers count as equal, whatever rounding makes of them; None to decide as the
    numbers are."""
    rounds_numbers: bool = False
    """Whether numbers are rounded to the dtype of the tensors that they are compared with or chosen instead of, and
    tensors of one number to that of the result."""


SAME = Mode()
DOUBLE = Mode(double=True)
IN_ORDER = Mode(in_order=True)


class Reason(str):
    """Says why there is no value. An exception would hold its frames, and they the program's tensors."""


class Run:
    """One evaluation of a fragment."""

    def __init__(
        self,
        stored: StoredValues,
        fragment: Fragment,
        given: Callable[[Value], Any],
        symbols: Mapping[str, int | float],
        device: Any,
        mode: Mode = SAME,
    ) -> None:
        """Prepare an evaluation; `given` returns the leaves, and `device` is that of constants."""
        self._stored, self._fragment, self._given, self._symbols = stored, fragment, given, symbols
        self._device, self._mode = device, mode
        self._values: dict[Value, Any] = {}
        self._moves = 0
        self._mutated: dict[str, dict[str, Any]] = {}
        """Copies that a mutating node has written to, by the node and by the root."""

    def targets(self) -> dict[Value, Any]:
        """Return the values of the fragment's targets, and the `Reason` for those that cannot be computed."""
        values, last = self._values, self._fragment.last_use
        found: dict[Value, Any] = {}
        for position, step in enumerate(self._fragment.steps):
            reasons = [one for value in step.needs.values() if isinstance(one := values[value], Reason)]
            result, values[step.value] = (reasons[0], reasons[0]) if reasons else self._attempt(step)
            if step.value in self._fragment.targets:
                found[step.value] = result
            for value in step.needs.values():
                if last.get(value) == position:
                    values.pop(value, None)
        return found

    def _attempt(self, step: Step) -> tuple[Any, Any]:
        """Return the value of a step, and what later steps read of it."""
        try:
            result = self._result(step)
            return result, self._rounded(step, result)
        except CannotJudge as error:
            reason = Reason(error)
        except (NotImplementedError, RuntimeError, TypeError, ValueError, IndexError, AttributeError, Warning) as error:
            lines = str(error).splitlines() or [repr(error)]
            what = "float64" if self._mode.double else "eager code"
            reason = Reason(NO_MEMORY if is_out_of_memory(error) else f"{what} cannot compute it: {lines[0][:160]}")
        return reason, reason

    def _result(self, step: Step) -> Any:
        if step.kind == "leaf":
            return self._leaf(step.value)
        if step.kind == "number":
            return self._number(self._stored.record.symbols[step.value.node])
        if step.kind == "constant":
            constant = tensor_of(self._stored.record.constants[self._stored.nodes[step.value.node].target])
            return self._in_mode(constant.to(self._device))
        if step.kind == "same":
            return self._values[next(iter(step.needs.values()))]
        if step.kind == "mutation":
            return self._mutation(step)
        return self._call(step.value.node, lambda name: self._operand(step, name))

    def _operand(self, step: Step, name: str) -> Any:
        """Return an operand of a step; one without dimensions does not decide on the dtype of the result."""
        value, nodes = self._values[step.needs[name]], self._stored.nodes
        dtype = nodes[step.value.node].dtype
        if not self._mode.rounds_numbers or dtype not in LOW or nodes[name].dtype not in WIDE or value.ndim:
            return value
        import torch

        return value.to(getattr(torch, dtype)).to(value.dtype)

    def _leaf(self, value: Value) -> Any:
        return self._moved(self._in_mode(self._given(value)), self._mode.distance)

    def _moved(self, given: Any, distance: float) -> Any:
        """Move a tensor of real numbers, if the mode moves any."""
        move = self._mode.move
        if move is None or not distance or not hasattr(given, "is_floating_point") or not given.is_floating_point():
            return given
        self._moves += 1
        return move(given, distance, self._moves)

    def _rounded(self, step: Step, result: Any) -> Any:
        """Return what later steps read of a result, which is moved if the step may round it."""
        dtype = self._mode.stored.get(step.value)
        if dtype is not None and step.kind != "leaf":
            result = result.to(dtype).to(result.dtype)
        node = self._stored.nodes[step.value.node]
        if not self._mode.between or step.kind not in ("call", "mutation") or is_exact(node.target):
            return result
        return self._moved(result, (self._mode.unit or spacing_of(node.dtype)) / 2 * self._mode.between)

    def _in_mode(self, value: Any) -> Any:
        if not self._mode.double or not hasattr(value, "dtype"):
            return value
        dtype = doubled(value.dtype)
        return value if dtype == value.dtype else value.to(dtype)

    def _number(self, expression: str) -> Any:
        return number_of(expression, self._symbols)

    def _call(self, name: str, operand: Callable[[str], Any]) -> Any:
        node = self._stored.nodes[name]
        args, kwargs = self._arguments(name, operand)
        if node.target.startswith("op:prims.inductor_rand"):
            if not args[-2 if "randint" not in node.target else -1].numel() == 1:
                raise CannotJudge(f"{node.target.removeprefix('op:')} uses the generator of eager code")
            drawn = self._in_mode(philox.drawn(node.target, args, kwargs, self._mode.double))
            return self._moved(drawn, self._mode.distance)
        if self._mode.double:
            if node.target.startswith(NOT_IN_DOUBLE):
                raise CannotJudge(f"{node.target.removeprefix('op:')} reads the bits of a number")
            found = in_double(node.target, args, kwargs)
            if found is not None:
                return found
        if self._mode.ties is not None and (found := are_equal(node.target, args, self._mode.ties)) is not None:
            return found
        if self._mode.in_order and is_loop(node.target):
            found = in_order(node.target, args, kwargs, self._precision(name))
            if found is not None:
                return found
        written = written_arguments(node.target)
        if written:  # its own result is wanted, and not what it writes to
            args = tuple(_copied(one) if position in written else one for position, one in enumerate(args))
        if node.target == CONVERT:
            return args[0].to(args[1])
        result = self._made(node.target, args, kwargs)
        if self._mode.double and node.target.startswith(VARIANCES) and _overflows(args[0], result):
            raise CannotJudge(f"the squares that {node.target.removeprefix('op:')} sums exceed the range of float32")
        return self._in_mode(result) if self._mode.double else result

    def _made(self, target: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        function = quick_function_of(target)
        result = function(*args, **kwargs)
        if self._mode.ties is not None and decides(target, None):
            return with_other_nan(result, partial(function, **kwargs), args, is_first=self._mode.move is downward)
        return result.fill_(self._mode.fill) if leaves_open(target) else result

    def _precision(self, name: str) -> Any:
        """Return the dtype in which a kernel computes a node."""
        import torch

        nodes = self._stored.nodes
        dtypes = {nodes[one].dtype for one in (name, *nodes_in(nodes[name].args)) if one in nodes}
        return torch.float64 if "float64" in dtypes else torch.float32

    def _arguments(self, name: str, operand: Callable[[str], Any]) -> tuple[Any, Any]:
        args, kwargs = self._stored.arguments(name, self._mode.double, self._mode.rounds_numbers)
        return args(operand, self._number), kwargs(operand, self._number)

    def _mutation(self, step: Step) -> Any:
        mutator = self._stored.mutators[step.value.node][step.value.mutations - 1]
        if mutator not in self._mutated:
            self._mutated[mutator] = self._mutate(mutator, step)
        return self._mutated[mutator][step.value.node]

    def _mutate(self, mutator: str, step: Step) -> dict[str, Any]:
        """Run a mutating node on copies; return the copies by root."""
        stored, node = self._stored, self._stored.nodes[mutator]
        roots = {stored.root(name) for name in written_nodes(node)}
        copies = {root: copied(self._values[step.needs[root]]) for root in roots}

        shares = calls_with_what_shares(node.target)

        def operand(name: str) -> Any:
            if shares and stored.root(name) in copies:
                return self._view(name, copies, step)
            return self._values[step.needs[name]]

        given, kwargs = self._arguments(mutator, operand)
        args = list(given)
        for position in written_arguments(node.target):
            argument = members_of(node.args)[position]  # type: ignore[index]
            members = members_of(argument)
            names = [node_of(one) for one in (members if members is not None else [argument])]
            views = [self._view(name, copies, step) if name is not None else None for name in names]
            args[position] = views if members is not None else views[0]
        function_of(node.target)(*args, **kwargs)
        return copies

    def _view(self, name: str, copies: Mapping[str, Any], step: Step) -> Any:
        """Return a view of a copy, as the program made it of the original.

        A closure that calls itself would keep the tensors alive until the garbage collector runs.
        """
        if name in copies:
            return copies[name]
        stored, node = self._stored, self._stored.nodes[name]
        parent = stored.parent[name]
        if written_nodes(node) or node.target.startswith("function:"):
            return self._view(parent, copies, step)
        return self._call(
            name, lambda one: self._view(one, copies, step) if one == parent else self._values[step.needs[one]]
        )


def _overflows(operand: Any, result: Any) -> bool:
    """Return whether sums of squares exceed float32: what the mean and the variance are then depends on their order."""
    import torch

    variance = result[0] if isinstance(result, tuple) else result
    most = torch.finfo(torch.float32).max * variance.numel() / max(operand.numel(), 1)
    if bool((variance <= most).all()):  # an infinity among the numbers makes it NaN
        return False
    return bool((variance > most).any()) or bool(operand.isinf().any())


def _copied(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_copied(one) for one in value]
    return copied(value) if hasattr(value, "clone") else value
