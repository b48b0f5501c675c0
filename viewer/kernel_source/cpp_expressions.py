"""Translates the expressions of a C++ kernel into Python syntax, on which indices are evaluated."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from stepscope.viewer.kernel_source.cpp_syntax import Expression, Name, Node, Number

_WHOLE = re.compile(r"(\d{1,18})(?:[uU]?[lL]{0,2})$")
_OPERATORS: Mapping[str, ast.operator] = {
    "+": ast.Add(), "-": ast.Sub(), "*": ast.Mult(), "/": ast.FloorDiv(), "%": ast.Mod(), "&": ast.BitAnd(),
}  # fmt: skip
_COMPARISONS: Mapping[str, ast.cmpop] = {"<": ast.Lt(), "<=": ast.LtE(), ">": ast.Gt(), ">=": ast.GtE()}
_INTEGERS = frozenset({"int64_t", "int32_t", "int", "long"})
_CASTS = frozenset({"static_cast", "convert"})
_UNSIGNED = frozenset(f"std::make_unsigned_t<{name}>" for name in _INTEGERS)


def python_of(found: Expression, now: Mapping[str, str]) -> ast.expr:
    """Return an expression with its names as `now` has them and without its casts between integers.

    Division is that of integers that are not negative. What has no meaning for an index becomes a call or a text.
    """
    match found:
        case Number(text):
            whole = _WHOLE.match(text)
            return ast.Constant(int(whole[1]) if whole else text)
        case Name(text):
            return ast.Name(now.get(text, text), ast.Load())
        case Node("index", (base, index)):
            return ast.Subscript(python_of(base, now), python_of(index, now), ast.Load())
        case Node("-", (operand,)):
            return ast.UnaryOp(ast.USub(), python_of(operand, now))
        case Node("?", (test, then, other)):
            return ast.IfExp(*(python_of(part, now) for part in (test, then, other)))
        case Node("call", (Name() as function, operand)) if _is_cast(function):
            return python_of(_signed(operand), now)
        case Node("call", (Name(text), *parts)):
            return _call(text.rpartition("::")[2], parts, now)
        case Node(sign, (left, right)) if sign in _OPERATORS:
            return ast.BinOp(python_of(left, now), _OPERATORS[sign], python_of(right, now))
        case Node(sign, (left, right)) if sign in _COMPARISONS:
            return ast.Compare(python_of(left, now), [_COMPARISONS[sign]], [python_of(right, now)])
        case Node(kind, parts):
            return _call(kind, parts, now)
    return ast.Constant("a function")


def _call(name: str, parts: tuple[Expression, ...] | list[Expression], now: Mapping[str, str]) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), [python_of(part, now) for part in parts], [])


def _is_cast(function: Name) -> bool:
    name = function.text.rpartition("::")[2]
    return name in _INTEGERS or name == "decltype" or (name in _CASTS and function.template in _INTEGERS)


def _signed(found: Expression) -> Expression:
    """Return a sum, difference or product of numbers cast to unsigned ones, as Inductor computes it, without the casts.

    The result is cast back to a signed number, and is the same unless it overflows.
    """
    match found:
        case Node(("+" | "-" | "*") as sign, parts):
            return Node(sign, tuple(_operand(part) for part in parts))
    return found


def _operand(found: Expression) -> Expression:
    match found:
        case Node("call", (Name("static_cast", template=template), operand)) if template in _UNSIGNED:
            return operand
    return found
