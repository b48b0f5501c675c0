"""Evaluates numeric expressions of generated code, in Python's arithmetic, without running the code."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Number = int | float
"""A number; a boolean is one too."""
Lookup = Callable[[str], "Number | None"]
"""Returns the number that a name stands for, or None if it is not known."""
_DEEPEST = 60
_MOST = 2**64
_MOST_SHIFT = 64
_OPERATORS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Div: operator.truediv, ast.Pow: operator.pow, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift, ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.USub: lambda one, _: -one, ast.UAdd: lambda one, _: +one,
    ast.Not: lambda one, _: not one, ast.Invert: lambda one, _: ~one,
}  # fmt: skip
_MATH = (
    "ceil", "floor", "trunc", "sqrt", "log", "log2", "exp", "cos", "cosh", "acos", "sin", "sinh", "asin", "tan", "tanh",
    "atan",
)  # fmt: skip
"""The functions of `math` that torch/utils/_sympy/printers.py writes."""


def _round(value: Number, digits: int = 0, *_: Number) -> Number:
    if abs(digits) > _MOST_SHIFT:
        raise ValueError("it has more digits than a number")
    return round(value, digits) if digits else round(value)


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{f"math.{name}": getattr(math, name) for name in _MATH}, "max": max, "min": min, "int": int, "float": float,
    "bool": bool, "abs": abs, "round": _round, "torch.sym_float": float, "torch.sym_int": int, "torch.sym_max": max,
    "torch.sym_min": min, "torch.sym_not": operator.not_, "torch.sym_sqrt": math.sqrt, "torch._sym_sqrt": math.sqrt,
    "div_floor_integer": operator.floordiv,
}  # fmt: skip
_NAMES = {"inf": math.inf, "nan": math.nan}
_FIXED = frozenset({"torch", "device", "aten", "prims", "inductor_ops", "float", *_NAMES})
_CONSTANT = (ast.Constant, ast.Name, ast.Attribute, ast.Call, ast.keyword, ast.Load, ast.UnaryOp, ast.USub)
"""Syntax of constants, which are shown as written: ``torch.float32``, ``device(type='cuda', index=0)``, a text."""
_ERRORS = (ArithmeticError, ValueError, TypeError, RecursionError, MemoryError)


def parsed(text: str) -> ast.expr | None:
    """Return the syntax of an expression, or None if `text` is not one."""
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, *_ERRORS):
        return None


def number(node: ast.expr, lookup: Lookup, depth: int = 0) -> Number | None:
    """Return the value of an expression, or None if it is not a number or one of its names is not known."""
    if depth > _DEEPEST:
        return None
    try:
        found = _number(node, lookup, depth + 1)
    except _ERRORS:
        return None
    return found if isinstance(found, float) or (isinstance(found, int) and abs(found) < _MOST) else None


def _number(node: ast.expr, lookup: Lookup, depth: int) -> Any:
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="math"), attr=name):
            known = lookup(name)
            return _NAMES.get(name) if known is None else known
        case ast.UnaryOp(op=op, operand=operand):
            return _applied(op, number(operand, lookup, depth), 0)
        case ast.BinOp(left=left, op=op, right=right):
            return _applied(op, number(left, lookup, depth), number(right, lookup, depth))
        case ast.Compare(left=left, ops=ops, comparators=others):
            values = [number(one, lookup, depth) for one in (left, *others)]
            found = [_applied(op, *pair) for op, *pair in zip(ops, values, values[1:], strict=False)]
            return None if None in found else all(found)
        case ast.BoolOp(op=op, values=parts):
            return _of_parts(isinstance(op, ast.Or), (number(one, lookup, depth) for one in parts))
        case ast.IfExp(test=test, body=body, orelse=other):
            holds = number(test, lookup, depth)
            return None if holds is None else number(body if holds else other, lookup, depth)
        case ast.Call(func=function, args=[ast.Constant(value=str() as text)], keywords=[]):
            return float(text) if ast.unparse(function) == "float" else None
        case ast.Call(func=function, args=arguments, keywords=[]):
            values = [number(one, lookup, depth) for one in arguments]
            known_function = _FUNCTIONS.get(ast.unparse(function))
            return None if None in values or known_function is None else known_function(*values)
    return None


def _of_parts(is_or: bool, values: Iterable[Number | None]) -> Number | None:
    """Return the value of ``and`` or ``or``, which is that of the part that decides."""
    found = None
    for found in values:
        if found is None or bool(found) == is_or:
            break
    return found


def _applied(op: ast.AST, left: Number | None, right: Number | None) -> Any:
    function = _OPERATORS.get(type(op))
    if function is None or left is None or right is None:
        return None
    if isinstance(op, (ast.Pow, ast.LShift)) and abs(right) > _MOST_SHIFT:
        return None
    return function(left, right)


def value_text(expression: str, lookup: Lookup) -> str | None:
    """Return the value of an argument as Python writes it: a number, a list of numbers, a constant. None if unknown."""
    node = parsed(expression)
    try:
        return None if node is None else _text(node, lookup, 0)
    except _ERRORS:
        return None


def _text(node: ast.expr, lookup: Lookup, depth: int) -> str | None:
    if depth > _DEEPEST:
        return None
    found = number(node, lookup)
    if found is not None:
        return repr(found)
    if isinstance(node, (ast.List, ast.Tuple)):
        parts = [_text(one, lookup, depth + 1) for one in node.elts]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        if isinstance(node, ast.List):
            return f"[{', '.join(known)}]"
        return f"({', '.join(known)}{',' if len(known) == 1 else ''})"
    is_fixed = all(isinstance(one, _CONSTANT) for one in ast.walk(node))
    is_known = all(one.id in _FIXED for one in ast.walk(node) if isinstance(one, ast.Name))
    return ast.unparse(node) if is_fixed and is_known else None


def number_of(text: str | None) -> Number | None:
    """Return the number that a text such as ``7``, ``0.5``, ``True`` or ``-inf`` is, or None if it is not one."""
    if text in ("True", "False"):
        return text == "True"
    try:
        return int(text or "")
    except ValueError:
        pass
    try:
        return float(text or "")
    except ValueError:
        return None
