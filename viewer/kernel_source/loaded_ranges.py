"""The ranges of indices that a generated kernel loads from memory, according to the recorded content of their tensors.

Such a range bounds an index but never proves that it stays within a storage: the elements that are read, and later
writes to them, are not followed. In Inductor's own C++ and Triton kernels the following are understood, statement by
statement: a load, a constant, their sum, and the choice that counts a negative index from the end. Everything else is
unknown.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

Interval = tuple[int, int]
_ASSIGNMENT = re.compile(r"^[ \t]*(?:auto[ \t]+)?(tmp\d+)[ \t]*=(?!=)(.*)$", re.MULTILINE)
_LONGEST = 400
_CPP_TYPE = re.compile(r"\b(?:static_cast|c10::convert)<int(?:32|64)_t>|\bdecltype\(\w+\)|\bint(?:32|64)_t(?=\()")
_LITERAL = re.compile(r"\b(\d+)[lL]+\b")
_CHOICE = re.compile(r"^(\w+) \? (\w+) : (\w+)$")
_WIDE = ("tl.int32", "tl.int64")
_MOST = 2**62


@dataclass(frozen=True)
class Loaded:
    """A whole number: one that was read, and so many more."""

    low: int
    high: int
    """Ends of the one that was read."""
    root: str | None = None
    """Its name; None: a constant."""
    more: int = 0
    parameters: frozenset[str] = frozenset()
    """Pointers to what was read."""

    @property
    def ends(self) -> Interval:
        return self.low + self.more, self.high + self.more


@dataclass(frozen=True)
class _Below:
    """Whether a number that was read is below another."""

    value: Loaded
    limit: int


def loaded_ranges(code: str, held: Mapping[str, Interval]) -> dict[str, Loaded]:
    """Variable of the kernel -> between which numbers it lies. `held`: smallest and largest element behind each
    pointer, by parameter."""
    if not held:
        return {}
    known: dict[str, Loaded | _Below] = {}
    meanings: defaultdict[str, set[Loaded | _Below | None]] = defaultdict(set)
    for name, text in _ASSIGNMENT.findall(code):
        known.pop(name, None)
        value = _read(name, text, known, held)
        if value is not None:
            known[name] = value
        meanings[name].add(value)
    # Loops beside one another give their variables the same names.
    sure = {name: next(iter(values)) for name, values in meanings.items() if len(values) == 1}
    return {name: value for name, value in sure.items() if isinstance(value, Loaded)}


def _read(
    name: str, text: str, known: Mapping[str, Loaded | _Below], held: Mapping[str, Interval]
) -> Loaded | _Below | None:
    if len(text) > _LONGEST:
        return None
    try:
        value = _value(name, _expression(text), known, held)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    is_small = not isinstance(value, Loaded) or max(map(abs, value.ends)) < _MOST
    return value if is_small else None


def _expression(text: str) -> ast.expr:
    text = _LITERAL.sub(r"\1", _CPP_TYPE.sub("", text.strip().removesuffix(";")))
    choice = _CHOICE.match(text)
    return ast.parse("where({}, {}, {})".format(*choice.groups()) if choice else text, mode="eval").body


def _value(
    name: str, node: ast.expr, known: Mapping[str, Loaded | _Below], held: Mapping[str, Interval]
) -> Loaded | _Below | None:
    match node:
        case ast.Constant(value=int() as number):
            return Loaded(number, number)
        case ast.Name(id=other):
            return known.get(other)
        case ast.Subscript(value=ast.Name(id=pointer)) if pointer in held:
            return Loaded(*held[pointer], name, 0, frozenset({pointer}))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _sum(_value(name, left, known, held), _value(name, right, known, held))
        case ast.Compare(left=left, ops=[ast.Lt()], comparators=[right]):
            value, limit = (_value(name, side, known, held) for side in (left, right))
            is_known = isinstance(value, Loaded) and isinstance(limit, Loaded) and limit.root is None
            return _Below(value, limit.ends[0]) if is_known else None  # type: ignore[arg-type, union-attr]
        case ast.Call(func=ast.Attribute(value=inner, attr="to"), args=[dtype]) if ast.unparse(dtype) in _WIDE:
            return _value(name, inner, known, held)
        case ast.Call(func=function, args=[first, *rest], keywords=keywords):
            called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            others = [ast.unparse(keyword.value) for keyword in keywords if keyword.arg in ("other", "mask")]
            if not set(others) <= {"0", "0.0"}:
                return None
            return _called(name, called, first, rest, known, held)
    return None


def _called(
    name: str,
    called: str,
    first: ast.expr,
    rest: list[ast.expr],
    known: Mapping[str, Loaded | _Below],
    held: Mapping[str, Interval],
) -> Loaded | _Below | None:
    if called == "load":
        pointers = {node.id for node in ast.walk(first) if isinstance(node, ast.Name)} & held.keys()
        if len(pointers) != 1:
            return None
        (pointer,) = pointers
        low, high = held[pointer]
        is_masked = bool(rest) and not (isinstance(rest[0], ast.Constant) and rest[0].value is None)
        ends = (min(low, 0), max(high, 0)) if is_masked else (low, high)  # else 0 stands there
        return Loaded(*ends, name, 0, frozenset({pointer}))
    if called == "full" and rest:
        return _value(name, rest[0], known, held)
    if called == "where" and len(rest) == 2:
        return _choice(name, _value(name, first, known, held), *(_value(name, one, known, held) for one in rest))
    return None


def _sum(left: Loaded | _Below | None, right: Loaded | _Below | None) -> Loaded | None:
    """Of a number that was read and a constant."""
    if not isinstance(left, Loaded) or not isinstance(right, Loaded):
        return None
    if left.root is None:
        left, right = right, left
    return replace(left, more=left.more + right.ends[0]) if right.root is None else None


def _choice(
    name: str, test: Loaded | _Below | None, then: Loaded | _Below | None, other: Loaded | _Below | None
) -> Loaded | None:
    """All three of the same number that was read: each side only where the test lets it."""
    if not isinstance(test, _Below) or not isinstance(then, Loaded) or not isinstance(other, Loaded):
        return None
    read = test.value
    if not read.root == then.root == other.root or read.root is None:
        return None
    limit = test.limit - read.more
    sides = [(read.low, min(read.high, limit - 1), then.more), (max(read.low, limit), read.high, other.more)]
    ends = [end + more for low, high, more in sides if low <= high for end in (low, high)]
    return Loaded(min(ends), max(ends), name, 0, read.parameters)
