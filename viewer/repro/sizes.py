"""Numbers of symbolic sizes in a generated wrapper, from the sizes of the tensors that were recorded."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

Shape = tuple[Sequence[int], Sequence[int]]
"""(size, stride) of a tensor."""
_SHAPED = {"assert_size_stride": 1, "reinterpret_tensor": 1}
_MOST_NAMES = 10_000


class Sizes:
    """Of one function of a wrapper and one call of it."""

    def __init__(self, function: ast.FunctionDef, recorded: Mapping[str, Shape]) -> None:
        self._assigned = {
            node.targets[0].id: node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        self._known: dict[str, int] = {}
        for expressions, shape in _shapes(function, recorded):
            for expression, number in zip(expressions, shape, strict=False):
                self._learn(expression, number)

    def value(self, node: ast.expr, depth: int = 0) -> int | None:
        """What an expression over sizes was; None where the log does not tell."""
        if depth > 50:
            return None
        if isinstance(node, ast.Constant):
            return node.value if type(node.value) is int else None
        if isinstance(node, ast.Name):
            if node.id in self._known:
                return self._known[node.id]
            assigned = self._assigned.get(node.id)
            return self.value(assigned, depth + 1) if assigned is not None else None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inside = self.value(node.operand, depth + 1)
            return None if inside is None else -inside
        if isinstance(node, ast.BinOp):
            return _arithmetic(node.op, self.value(node.left, depth + 1), self.value(node.right, depth + 1))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("max", "min", "int"):
            found = [self.value(argument, depth + 1) for argument in node.args]
            numbers = [number for number in found if number is not None]
            if numbers and len(numbers) == len(found) and not node.keywords:
                return {"max": max, "min": min, "int": max}[node.func.id](numbers)
        return None

    def _learn(self, expression: ast.expr, number: int) -> None:
        """``s0`` and ``4*s0`` tell what s0 is."""
        if isinstance(expression, ast.Name) and len(self._known) < _MOST_NAMES:
            self._known.setdefault(expression.id, number)
        elif isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.Mult):
            for one, other in ((expression.left, expression.right), (expression.right, expression.left)):
                factor = self.value(other)
                if isinstance(one, ast.Name) and factor and number % factor == 0:
                    self._known.setdefault(one.id, number // factor)


def _shapes(function: ast.FunctionDef, recorded: Mapping[str, Shape]) -> Iterator[tuple[list[ast.expr], Sequence[int]]]:
    """Sizes and strides as the wrapper writes them, with what they were."""
    for node in ast.walk(function):
        name, call, first = _shaped(node)
        if name in recorded and call is not None and len(call.args) > first + 1:
            for expression, numbers in zip(call.args[first : first + 2], recorded[name], strict=True):
                if isinstance(expression, ast.Tuple) and len(expression.elts) == len(numbers):
                    yield expression.elts, numbers


def _shaped(node: ast.AST) -> tuple[str, ast.Call | None, int]:
    """The name that the recorder gave the tensor, the call that names its shape, and where in it."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name):
        factory = node.value.func
        if isinstance(factory, ast.Name) and factory.id.startswith("empty_strided"):
            return node.targets[0].id, node.value, 0
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _SHAPED and node.args:
        is_view = node.func.id == "reinterpret_tensor"
        return ast.unparse(node if is_view else node.args[0]), node, 1
    return "", None, 0


def _arithmetic(operator: ast.operator, left: int | None, right: int | None) -> int | None:
    if left is None or right is None or max(abs(left), abs(right)) >= 2**63:
        return None
    if isinstance(operator, ast.Add):
        return left + right
    if isinstance(operator, ast.Sub):
        return left - right
    if isinstance(operator, ast.Mult):
        return left * right
    if isinstance(operator, ast.FloorDiv) and right:
        return left // right
    if isinstance(operator, ast.Mod) and right:
        return left % right
    return None
