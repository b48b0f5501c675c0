"""Evaluates an index expression over the values of its loops."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stepscope.viewer.kernel_source.cpp_syntax import Expression, Name, Node, Number
from stepscope.viewer.kernel_source.cpp_tokens import NotUnderstoodError

if TYPE_CHECKING:
    import numpy as np

    Values = np.ndarray[Any, np.dtype[np.int64]] | int

_MOST = 1 << 61
_WHOLE = re.compile(r"(\d{1,18})(?:[uU]?[lL]{0,2})$")
_CASTS = frozenset({"static_cast", "convert", "int64_t", "int32_t", "int", "long"})
_FLOORS = frozenset({"div_floor_integer"})
_PYTHON_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Mod: "%", ast.FloorDiv: "//"}


def values_of(index: Expression, known: Mapping[str, Values]) -> Values:
    """Raises NotUnderstoodError where the index has a name that is not known, or an operation that no index has."""
    match index:
        case Number(text):
            whole = _WHOLE.match(text)
            if whole is None:
                raise NotUnderstoodError
            return int(whole[1])
        case Name(text):
            if text not in known:
                raise NotUnderstoodError
            return known[text]
        case Node("-", (one,)):
            return -values_of(one, known)
        case Node(("+" | "-" | "*" | "/" | "%" | "//") as sign, (left, right)):
            return _result(sign, values_of(left, known), values_of(right, known))
        case Node("call", (Name(text), *arguments)):
            name = text.rpartition("::")[2]
            if name in _CASTS and len(arguments) == 1:
                return values_of(arguments[0], known)
            if name in _FLOORS and len(arguments) == 2:
                return _result("//", *(values_of(one, known) for one in arguments))
    raise NotUnderstoodError


def _result(sign: str, left: Values, right: Values) -> Values:
    a, b = _largest(left), _largest(right)
    if max(a + b, a * b if sign == "*" else 0) > _MOST:  # what computes with it does not see that it overflows
        raise NotUnderstoodError
    if sign == "+":
        return left + right
    if sign == "-":
        return left - right
    if sign == "*":
        return left * right
    # C++ and Python divide and take remainders alike where nothing is negative; an index does not go there.
    if not isinstance(right, int) or right <= 0 or _smallest(left) < 0:
        raise NotUnderstoodError
    return left % right if sign == "%" else left // right


def _smallest(values: Values) -> int:
    return values if isinstance(values, int) else int(values.min(initial=0))


def _largest(values: Values) -> int:
    """Without its sign."""
    if isinstance(values, int):
        return abs(values)
    return max(abs(int(values.min(initial=0))), abs(int(values.max(initial=0))))


def names_in(index: Expression) -> set[str]:
    """The variables of an index; the functions that it calls are none."""
    match index:
        case Name(text):
            return {text}
        case Node("call", (Name(), *arguments)):
            return set().union(*map(names_in, arguments))
        case Node():
            return set().union(*map(names_in, index.parts))
    return set()


def of_python(text: str) -> Expression:
    """The index expression of a Triton kernel. Raises NotUnderstoodError."""
    try:
        return _of_python(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotUnderstoodError from error


def _of_python(node: ast.expr) -> Expression:
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return Number(str(value))
        case ast.Name(id=name):
            return Name(name, 0)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return Node("-", (_of_python(operand),), 0, 0)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _PYTHON_SIGNS:
            return Node(_PYTHON_SIGNS[type(op)], (_of_python(left), _of_python(right)), 0, 0)
    raise NotUnderstoodError
