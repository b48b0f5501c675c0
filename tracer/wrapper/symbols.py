"""Finds the numbers that launches of a wrapper's function get, and where the function computes them.

A number that a function gets as an argument or reads from a tensor is a symbol, whose value is recorded once per call.
Numbers that depend only on symbols can be computed from them and are not recorded.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from stepscope.tracer.schema.graphs import LaunchSite
from stepscope.tracer.schema.scalars import Scalar
from stepscope.tracer.wrapper.expressions import SYMBOL, dotted

ARITHMETIC = frozenset({"max", "min", "int", "float", "bool", "abs", "round"})
IN_TORCH = ("sym_", "_sym_")
"""Prefixes of functions of numbers in `torch`."""
ARITHMETIC_NODES = (
    ast.Constant, ast.Name, ast.Load, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.operator,
    ast.unaryop, ast.boolop, ast.cmpop, ast.Call, ast.Attribute,
)  # fmt: skip
MOST_TEXT = 200
MOST_CONSTANT = 1000


class ScalarArgument(NamedTuple):
    """An argument of a launch that is not a tensor, with its syntax."""

    position: int | None
    name: str | None
    expression: ast.expr
    type: str | None


class Binding(NamedTuple):
    """A statement of a wrapper after which symbols have values."""

    statement: ast.stmt
    names: tuple[str, ...]


class _Bound(NamedTuple):
    statement: ast.stmt | None
    """Statement that binds the name; None for the head of a loop, which nothing can directly follow."""
    value: ast.expr | None
    """Value of the name; None if the statement unpacks it from another value."""
    is_repeated: bool


class FunctionSymbols:
    def __init__(self, function: ast.FunctionDef) -> None:
        self._function = function
        self._bound: defaultdict[str, list[_Bound]] = defaultdict(list)
        self._roots: dict[str, None] = {}
        self._meanings: dict[str, ast.expr] = {}
        self._read(function.body, is_repeated=False)
        for name in self._bound:
            if SYMBOL.fullmatch(name):
                self._root(name)

    @property
    def names(self) -> list[str]:
        return list(self._roots)

    def with_scalars(self, site: LaunchSite, found: Sequence[ScalarArgument]) -> LaunchSite:
        """Return `site` with its scalar arguments as expressions of symbols."""
        scalars = [
            Scalar(one.position, one.name, self._text(one.expression), one.type or _type_of(one.expression))
            for one in found
        ]
        return replace(site, scalars=[*scalars, *site.scalars])

    def bindings(self) -> list[Binding]:
        """Return the bindings; consecutive statements have one, after the last of them. Several may bind a name."""
        names: defaultdict[ast.stmt, list[str]] = defaultdict(list)
        for name in self._roots:
            for bound in self._bound[name]:
                if bound.statement is not None:
                    names[bound.statement].append(name)
        found = []
        for node in ast.walk(self._function):
            for field in ("body", "orelse", "finalbody"):
                found_block = getattr(node, field, None)
                block: list[ast.stmt] = found_block if isinstance(found_block, list) else []
                waiting: dict[str, None] = {}
                for at, statement in enumerate(block):
                    if statement not in names:
                        continue
                    waiting |= dict.fromkeys(names[statement])
                    if at + 1 == len(block) or block[at + 1] not in names:
                        found.append(Binding(statement, tuple(waiting)))
                        waiting = {}
        return found

    def _read(self, body: Sequence[ast.stmt], is_repeated: bool) -> None:
        for statement in body:
            for name, value in _bound_by(statement):
                is_head = isinstance(statement, ast.For)
                self._bound[name].append(_Bound(None if is_head else statement, value, is_repeated or is_head))
            inside = is_repeated or isinstance(statement, (ast.For, ast.While))
            for block in ("body", "orelse", "finalbody"):
                self._read(getattr(statement, block, None) or [], inside)

    def _root(self, name: str) -> ast.expr:
        self._roots[name] = None
        return ast.Name(name, ast.Load())

    def _text(self, expression: ast.expr) -> str:
        found = ast.unparse(_Replaced(self).visit(_copy(expression)))
        return found if len(found) <= MOST_CONSTANT else f"{found[: MOST_CONSTANT - 1]}…"

    def meaning(self, name: str) -> ast.expr:
        """Return a name of the function as an expression of symbols; other names stay as they are."""
        if name not in self._bound:
            return ast.Name(name, ast.Load())
        if name not in self._meanings:
            self._meanings[name] = ast.Name(name, ast.Load())  # ends a recursion of names that depend on themselves
            self._meanings[name] = self._derived(name) or self._root(name)
        return self._meanings[name]

    def _derived(self, name: str) -> ast.expr | None:
        """Return the expression of a name, or None if its value does not follow from others by arithmetic alone."""
        value = self._bound[name][0].value
        if SYMBOL.fullmatch(name) or value is None or not self._is_steady(name) or not _is_arithmetic(value):
            return None
        inside = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)} - ARITHMETIC - {"math", "torch"}
        if not all(other in self._bound and self._is_steady(other) for other in inside):
            return None
        found: ast.expr = _Replaced(self).visit(_copy(value))
        return found if len(ast.unparse(found)) <= MOST_TEXT else None

    def _is_steady(self, name: str) -> bool:
        return len(self._bound[name]) == 1 and not self._bound[name][0].is_repeated


class _Replaced(ast.NodeTransformer):
    def __init__(self, symbols: FunctionSymbols) -> None:
        self.symbols = symbols

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.symbols.meaning(node.id)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Replace names in the arguments of functions of numbers; other calls may depend on tensors."""
        if not _is_number_function(dotted(node.func) or ""):
            return node
        node.args = [self.visit(argument) for argument in node.args]
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        return node


def _bound_by(statement: ast.stmt) -> Iterator[tuple[str, ast.expr | None]]:
    targets: Sequence[ast.expr] = ()
    value: ast.expr | None = None
    if isinstance(statement, ast.Assign):
        targets, value = statement.targets, statement.value
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets, value = [statement.target], statement.value
    elif isinstance(statement, (ast.AugAssign, ast.For)):
        targets = [statement.target]
    for target in targets:
        if isinstance(target, ast.Name):
            yield target.id, value
        elif isinstance(target, (ast.Tuple, ast.List)):
            yield from ((node.id, None) for node in ast.walk(target) if isinstance(node, ast.Name))


def _is_number_function(name: str) -> bool:
    return name in ARITHMETIC or _is_of_a_module(name)


def _is_of_a_module(name: str) -> bool:
    module, _, function = name.partition(".")
    return module == "math" or (module == "torch" and function.startswith(IN_TORCH))


def _is_arithmetic(value: ast.expr) -> bool:
    for node in ast.walk(value):
        if not isinstance(node, ARITHMETIC_NODES):
            return False
        if isinstance(node, ast.Constant) and not isinstance(node.value, (int, float)):
            return False
        if isinstance(node, ast.Call) and (node.keywords or not _is_number_function(dotted(node.func) or "")):
            return False
        if isinstance(node, ast.Attribute) and not _is_of_a_module(dotted(node) or ""):
            return False
    return True


def _copy(expression: ast.expr) -> ast.expr:
    return ast.parse(ast.unparse(expression), mode="eval").body


def _type_of(expression: ast.expr) -> str | None:
    """Return the type of a constant expression, or None for others."""
    inner = expression.operand if isinstance(expression, ast.UnaryOp) else expression
    if isinstance(inner, (ast.List, ast.Tuple)):
        return type(inner).__name__.lower()
    return type(inner.value).__name__ if isinstance(inner, ast.Constant) and inner.value is not None else None
