"""Finds the values of symbolic sizes in a generated wrapper, from the sizes of the recorded tensors."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from stepscope.tracer.wrapper.statements import layout_checks
from stepscope.viewer.kernel_source.arithmetic import Number, number

Shape = tuple[Sequence[int], Sequence[int]]
"""Size and stride of a tensor, in elements."""
_MOST_NAMES = 10_000


class Sizes:
    """The values of the sizes in one function of a wrapper during one call."""

    def __init__(
        self, function: ast.FunctionDef, recorded: Mapping[str, Shape], symbols: Mapping[str, Number] | None = None
    ) -> None:
        """`recorded` has the shapes of tensors, `symbols` the numbers that the log has of the call."""
        self._assigned = {
            node.targets[0].id: node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        self._known: dict[str, Number] = dict(symbols or {})
        for expressions, shape in _shapes(function, recorded):
            for expression, size in zip(expressions, shape, strict=False):
                self._learn(expression, size)

    def value(self, node: ast.expr, depth: int = 0) -> Number | None:
        """Return the value of an expression over sizes, or None if it does not follow from the log."""
        return None if depth > 50 else number(node, lambda name: self._named(name, depth))

    def _named(self, name: str, depth: int) -> Number | None:
        if name in self._known:
            return self._known[name]
        assigned = self._assigned.get(name)
        return self.value(assigned, depth + 1) if assigned is not None else None

    def _learn(self, expression: ast.expr, size: int) -> None:
        """Learn the value of s0 from an expression such as ``s0`` or ``4*s0`` and its value."""
        if isinstance(expression, ast.Name) and len(self._known) < _MOST_NAMES:
            self._known.setdefault(expression.id, size)
        elif isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.Mult):
            for one, other in ((expression.left, expression.right), (expression.right, expression.left)):
                factor = self.value(other)
                if isinstance(one, ast.Name) and type(factor) is int and factor and size % factor == 0:
                    self._known.setdefault(one.id, size // factor)


def _shapes(function: ast.FunctionDef, recorded: Mapping[str, Shape]) -> Iterator[tuple[list[ast.expr], Sequence[int]]]:
    """Yield the sizes and the strides of tensors, as the wrapper writes them and as they were recorded."""
    for node in ast.walk(function):
        for name, *shape in _shaped(node):
            for expression, numbers in zip(shape, recorded.get(name, ()), strict=False):
                if isinstance(expression, ast.Tuple) and len(expression.elts) == len(numbers):
                    yield expression.elts, numbers


def _shaped(node: ast.AST) -> Iterator[tuple[str, ast.expr, ast.expr]]:
    """Yield the recorded name, the size and the stride of each tensor whose shape a call or an allocation names."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name):
        factory, arguments = node.value.func, node.value.args
        if isinstance(factory, ast.Name) and factory.id.startswith("empty_strided") and len(arguments) > 1:
            yield node.targets[0].id, arguments[0], arguments[1]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id == "reinterpret_tensor" and len(node.args) > 2:
            yield ast.unparse(node), node.args[1], node.args[2]
        for name, size, stride in layout_checks(node):
            yield ast.unparse(name), size, stride
