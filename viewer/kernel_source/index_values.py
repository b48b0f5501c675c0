"""Evaluates an index expression over the values of its loops."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stepscope.viewer.kernel_source.cpp_tokens import NotUnderstoodError
from stepscope.viewer.kernel_source.element_access import Meanings
from stepscope.viewer.kernel_source.intervals import Interval

if TYPE_CHECKING:
    import numpy as np

    Values = np.ndarray[Any, np.dtype[np.int64]] | int

_MOST = 1 << 61
_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Mod: "%", ast.FloorDiv: "//"}


def values_of(node: ast.expr, known: dict[str, Values], meanings: Meanings) -> Values:
    """Return the values of an expression, and add those of its names to `known`.

    Raises NotUnderstoodError if a name is not known, or an operation is none that an index has.
    """
    match node:
        case ast.Constant(value=int() as number) if number < _MOST:
            return number
        case ast.Name(id=name):
            if name not in known:
                known[name] = _meant(meanings.get(name), lambda meaning: values_of(meaning, known, meanings))
            return known[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -values_of(operand, known, meanings)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _result(_OPERATORS[type(op)], *(values_of(side, known, meanings) for side in (left, right)))
        case ast.Call(args=[left, right]) if ast.unparse(node.func).endswith("div_floor_integer"):
            return _result("//", *(values_of(side, known, meanings) for side in (left, right)))
    raise NotUnderstoodError


def _meant(meaning: ast.expr | Interval | None, values: Callable[[ast.expr], Values]) -> Values:
    if isinstance(meaning, ast.expr):
        return values(meaning)
    if meaning is None or not meaning.is_one:
        raise NotUnderstoodError
    return int(meaning.low)


def _result(sign: str, left: Values, right: Values) -> Values:
    a, b = _largest(left), _largest(right)
    if max(a + b, a * b if sign == "*" else 0) > _MOST:  # numpy does not report an overflow
        raise NotUnderstoodError
    if sign == "+":
        return left + right
    if sign == "-":
        return left - right
    if sign == "*":
        return left * right
    # C++ and Python divide alike where nothing is negative, and no index is.
    if not isinstance(right, int) or right <= 0 or _smallest(left) < 0:
        raise NotUnderstoodError
    return left % right if sign == "%" else left // right


def _smallest(values: Values) -> int:
    return values if isinstance(values, int) else int(values.min(initial=0))


def _largest(values: Values) -> int:
    """Return the largest magnitude."""
    if isinstance(values, int):
        return abs(values)
    return max(abs(int(values.min(initial=0))), abs(int(values.max(initial=0))))


def names_in(node: ast.expr, meanings: Meanings, seen: set[str] | None = None) -> set[str]:
    """Return the names that an expression is computed from, with those that they stand for."""
    found = set() if seen is None else seen
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and part.id not in found:
            found.add(part.id)
            meaning = meanings.get(part.id)
            if isinstance(meaning, ast.expr):
                names_in(meaning, meanings, found)
    return found
