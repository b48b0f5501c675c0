"""Queries moving averages whose updates are too small for their dtype, from the graphs of Dynamo."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from stepscope.viewer.graphs.queries.dynamo_nodes import dynamo_graphs, functions, nodes_of
from stepscope.viewer.graphs.queries.program_names import names_of_dynamo
from stepscope.viewer.graphs.rows import SourceLine, commented_lines
from stepscope.viewer.store.trace import Trace

LEAST_CALLS = 3
LEAST_FACTOR = 1.0
"""An average that follows values nearer to it than this, relative to its magnitude, is not told."""
_SIGNIFICANT_BITS = {"bf16": 8, "f16": 11}
_OPERATORS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
_SAME = {"detach", "clone", "to", "float", "double", "half", "bfloat16", "type", "type_as", "contiguous"}
"""Functions whose result has the values of their first tensor."""
_EVERYTHING = {"slice(None, None, None)", "Ellipsis"}
"""Indices of all elements."""
_MOST_TERMS = 4

Form = Mapping[str, float]
"""A sum of tensors with constant weights, by the names of the tensors."""
Operand = Form | float | None
"""A tensor, a number, or something else."""


@dataclass(frozen=True)
class RoundedAverage:
    """Averages that one line of the program updates in place."""

    log: int
    graph: int
    step: int
    """The step of the first call of the graph."""
    start_ns: int
    names: tuple[str, ...]
    """In the program; "" for one whose name is unknown."""
    dtype: str
    """Such as ``bf16``."""
    weight: float
    """Of what is averaged, so that 1 - weight is that of the average itself."""
    factor: float
    """An element changes only if what is averaged differs from it by about so many times its magnitude."""
    source: SourceLine | None


def rounded_averages(trace: Trace) -> Iterator[RoundedAverage]:
    """Yield the averages in the order of their graphs, those of one line, dtype and weight together."""
    for of in dynamo_graphs(trace, LEAST_CALLS):
        groups: dict[tuple[str, float, SourceLine | None], list[str]] = {}
        for name, dtype, weight, source in averages(of.text(trace)):
            groups.setdefault((dtype, weight, source), []).append(name)
        names = names_of_dynamo(trace, of.log, of.compile_id, of.record) if groups else {}
        for (dtype, weight, source), inputs in groups.items():
            known = tuple(names[one].name or "" if one in names else "" for one in inputs)
            factor = factor_of(dtype, weight)
            yield RoundedAverage(of.log, of.graph, of.step, of.start_ns, known, dtype, weight, factor, source)


def factor_of(dtype: str, weight: float) -> float:
    """Return how far, relative to an element of an average, a new value must be away for the element to change.

    Numbers next to each other differ by at least 2^-p of their magnitude if they have p significant bits; an update by
    less than half of that is rounded away."""
    return float(2.0 ** -(_SIGNIFICANT_BITS[dtype] + 1) / weight)


def averages(graph: str) -> Iterator[tuple[str, str, float, SourceLine | None]]:
    """Yield the inputs of a graph of Dynamo that it replaces by a weighted mean of themselves and of other values, if
    their dtype rounds updates by values away that differ by less than their magnitude: name, dtype, weight of the other
    values, line of the program."""
    function = next(functions(graph), "")
    inputs = {one.name: one.dtype for one in nodes_of(function).values() if one.function == "placeholder"}
    sums = _Sums()
    for line, source in commented_lines(function):
        for name in sums.run(line):
            dtype = inputs.get(name) or ""
            weight = _weight(name, sums.of(name))
            if weight is not None and dtype in _SIGNIFICANT_BITS and factor_of(dtype, weight) >= LEAST_FACTOR:
                del inputs[name]
                yield name, dtype, weight, source


def _weight(average: str, form: Form) -> float | None:
    """Return the weight of the other values if a form is a weighted mean of an average and of them."""
    weight = round(1 - form.get(average, 0), 12)
    is_mean = 0 < weight < 1 and abs(sum(form.values()) - 1) < 1e-6
    return weight if is_mean else None


class _Sums:
    """What the tensors of a function are as weighted sums of its inputs and of tensors that it computes otherwise."""

    def __init__(self) -> None:
        self._forms: dict[str, Form] = {}
        self._same: dict[str, str] = {}
        """The first name of a tensor by another one."""

    def of(self, name: str) -> Form:
        first = self._same.get(name, name)
        return self._forms.get(first, {first: 1.0})

    def run(self, line: str) -> Iterator[str]:
        """Run the statements of a line, and yield the first names of the tensors that they change in place."""
        try:
            statements = ast.parse(line.strip()).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        for statement in statements:
            match statement:
                case ast.AugAssign(ast.Name(target), operator, value):
                    yield from self._change([target], _OPERATORS.get(type(operator), ""), [[self._read(value)]], {})
                case ast.Assign([ast.Subscript(ast.Name(target), index)], value) if ast.unparse(index) in _EVERYTHING:
                    yield from self._change([target], "copy_", [[self._read(value)]], {})
                case ast.Assign([ast.Name(target)], value) | ast.AnnAssign(ast.Name(target), _, ast.expr() as value):
                    yield from self._assign(target, value)

    def _assign(self, target: str, value: ast.expr) -> Iterator[str]:
        match value:
            case (
                ast.Name(name)
                | ast.Call(ast.Attribute(ast.Name(name), "detach"), [])
                | ast.Call(ast.Attribute(_, "_get_data_attr"), [ast.Name(name)])
            ):
                self._same[target] = self._same.get(name, name)
            case ast.BinOp(left, operator, right):
                self._store(target, _OPERATORS.get(type(operator), ""), [self._read(left), self._read(right)], {})
            case ast.Call(ast.Attribute(owner, function), arguments, keywords):
                is_method = not (isinstance(owner, ast.Name) and owner.id == "torch")
                given = [owner, *arguments] if is_method else arguments
                named = {one.arg: self._read(one.value) for one in keywords if one.arg}
                if function.startswith("_foreach_") and given:
                    name = function.removeprefix("_foreach_")
                    yield from self._change(_names(given[0]), name, [self._each(one) for one in given[1:]], named)
                elif function.endswith("_") and given and isinstance(given[0], ast.Name):
                    yield from self._change([given[0].id], function, [[self._read(one)] for one in given[1:]], named)
                    self._same[target] = self._same.get(given[0].id, given[0].id)
                else:
                    self._store(target, function, [self._read(one) for one in given], named)

    def _change(
        self, targets: Sequence[str], function: str, others: Sequence[Sequence[Operand]], named: Mapping[str, Operand]
    ) -> Iterator[str]:
        """Change tensors in place, each with its element of the other operands, or with the only one of them."""
        if not function.endswith("_") and function not in _OPERATORS.values():
            return
        for number, target in enumerate(targets):
            own = [one[number] if number < len(one) else one[0] if len(one) == 1 else None for one in others]
            first = self._same.get(target, target)
            self._store(first, function.rstrip("_"), [self.of(first), *own], named)
            yield first

    def _store(self, target: str, function: str, operands: Sequence[Operand], named: Mapping[str, Operand]) -> None:
        self._same.pop(target, None)
        found = _sum(function, operands, named)
        self._forms[target] = found if found is not None and len(found) <= _MOST_TERMS else {f"new {target}": 1.0}

    def _each(self, value: ast.expr) -> list[Operand]:
        return (
            [self._read(one) for one in value.elts] if isinstance(value, ast.List | ast.Tuple) else [self._read(value)]
        )

    def _read(self, value: ast.expr) -> Operand:
        match value:
            case ast.Name(name):
                return self.of(name)
            case ast.Constant(int() | float() as number):
                return float(number)
            case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as number)):
                return -float(number)
        return None


def _names(value: ast.expr) -> list[str]:
    elements = value.elts if isinstance(value, ast.List | ast.Tuple) else []
    return [one.id if isinstance(one, ast.Name) else "" for one in elements]


def _sum(function: str, operands: Sequence[Operand], named: Mapping[str, Operand]) -> Form | None:
    """Return the result of a function as a sum, or None if it is none with constant weights."""
    match function, operands:
        case "add" | "sub", [dict() as left, dict() as right]:
            alpha = named.get("alpha", 1.0)
            sign = 1.0 if function == "add" else -1.0
            return _added(left, right, sign * alpha) if isinstance(alpha, float) else None
        case "mul", [dict() as form, float() as factor] | [float() as factor, dict() as form]:
            return _added({}, form, factor)
        case "div", [dict() as form, float() as divisor] if divisor:
            return _added({}, form, 1 / divisor)
        case "copy", [_, dict() as form]:
            return form
        case "lerp", [dict() as start, dict() as end, float() as weight]:
            return _added(_added({}, start, 1 - weight), end, weight)
    tensors = [one for one in operands if isinstance(one, dict)]
    return tensors[0] if function in _SAME and tensors else None


def _added(left: Form, right: Form, factor: float) -> Form:
    return {name: left.get(name, 0.0) + factor * right.get(name, 0.0) for name in dict.fromkeys([*left, *right])}
