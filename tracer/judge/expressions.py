"""Evaluates the expressions of symbolic sizes that a record holds, such as ``8*s77 + FloorDiv(s3, 2)``."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from stepscope.tracer.judge.targets import CannotJudge

Number = int | float

_OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "CeilDiv": lambda a, b: -(-a // b),
    "CeilToInt": math.ceil,
    "FloorToInt": math.floor,
    "TruncToInt": math.trunc,
    "ToFloat": float,
    "IntTrueDiv": operator.truediv,
    "FloatTrueDiv": operator.truediv,
    "PythonMod": operator.mod,
    "Mod": operator.mod,
    "ModularIndexing": lambda x, divisor, modulus: (x // divisor) % modulus,
    "Max": max,
    "Min": min,
    "Identity": lambda x: x,
}


def number_of(expression: int | str, symbols: Mapping[str, Number]) -> Number:
    """Return the value of an expression. Raises CannotJudge if a symbol or a function in it is unknown."""
    if isinstance(expression, int):
        return expression
    if expression in symbols:
        return symbols[expression]
    try:
        found: Number = _value(ast.parse(expression, mode="eval").body, symbols)
        return found
    except (SyntaxError, ArithmeticError, RecursionError, TypeError):
        raise CannotJudge(f"the size {expression} is not known") from None


def _value(node: ast.expr, symbols: Mapping[str, Number]) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.Name) and node.id in symbols:
        return symbols[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left, symbols), _value(node.right, symbols))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.operand, symbols))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
        return _FUNCTIONS[node.func.id](*(_value(one, symbols) for one in node.args))
    raise CannotJudge(f"the size {ast.unparse(node)} is not known")
