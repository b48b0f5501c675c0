"""Finds the one statement of a source file that adds to a container with a name."""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

ADDERS = {"append", "appendleft", "add", "extend", "insert", "update", "setdefault", "push"}
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
MOST_BYTES = 200 << 10
"""Size of a source file from which on it is not read."""


class Added(NamedTuple):
    """A container by where it is: in a variable, or in an attribute of an object."""

    file: str
    name: str
    is_attribute: bool = False
    function_line: int | None = None
    """The first line of the function that has the variable; None for a variable of the module."""


@lru_cache(maxsize=64)
def adding_line(to: Added) -> int | None:
    """Return the line of the only statement that adds to a container or to one in it, such as ``kept.append(x)`` or
    ``kept[key] = x``; None if there is none or several, or if the file is no source. Raises nothing."""
    try:
        if Path(to.file).stat().st_size > MOST_BYTES:
            return None
        with tokenize.open(to.file) as file:
            found = _lines(ast.parse(file.read()), to)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):  # Python's parser raises all of these
        return None
    return found[0] if len(found) == 1 else None


def _lines(module: ast.AST, to: Added) -> list[int]:
    """Return the lines of a module, or of the function that has the variable, that add to a container."""
    tree: ast.AST | None = module
    if to.function_line is not None:
        tree = next((one for one in ast.walk(module) if _begins_at(one, to.function_line)), None)
    is_global = not to.is_attribute and to.function_line is None
    return [*_adding(tree, to, is_global)] if tree is not None else []


def _begins_at(node: ast.AST, line: int) -> bool:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    return min([node.lineno, *(one.lineno for one in node.decorator_list)]) == line


def _adding(node: ast.AST, to: Added, skips_locals: bool) -> Iterator[int]:
    """Yield the lines below a node that add; with `skips_locals`, not those in functions with such a variable."""
    nodes = [node]
    while nodes:  # an expression may be deeper than Python's stack
        one = nodes.pop()
        if skips_locals and isinstance(one, _Function) and _binds(one, to.name):
            continue
        if any(_is_named(target, to) for target in _targets(one)):
            yield one.lineno  # type: ignore[attr-defined]
        nodes += ast.iter_child_nodes(one)


def _targets(node: ast.AST) -> list[ast.expr]:
    """Return the containers to which an expression or a statement adds."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ADDERS:
        return [node.func.value]
    if isinstance(node, ast.AugAssign):
        return [node.target]
    if isinstance(node, ast.Assign):
        return [target.value for target in node.targets if isinstance(target, ast.Subscript)]
    return []


def _is_named(target: ast.expr, to: Added) -> bool:
    while isinstance(target, ast.Subscript):
        target = target.value
    if to.is_attribute:
        return isinstance(target, ast.Attribute) and target.attr == to.name
    return isinstance(target, ast.Name) and target.id == to.name


def _binds(function: _Function, name: str) -> bool:
    """Return whether a function has a variable or a parameter of its own with this name."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    if any(one is not None and one.arg == name for one in named):
        return True
    inside = [*ast.walk(function)]
    if any(isinstance(one, ast.Global) and name in one.names for one in inside):
        return False
    return any(isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Store) for one in inside)
