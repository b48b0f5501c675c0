"""Reads the statements of a graph of Dynamo that compute weighted sums of tensors."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

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


class WeightedSums:
    """What the tensors of a function are as weighted sums of its inputs and of tensors that it computes otherwise."""

    def __init__(self) -> None:
        self._forms: dict[str, Form] = {}
        self._same: dict[str, str] = {}
        """The first name of a tensor by another one."""

    def of(self, name: str) -> Form:
        """Return what the tensor of a name is at this point."""
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
