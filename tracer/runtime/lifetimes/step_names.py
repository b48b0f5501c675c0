"""Reads from a function's source which names share memory, which `check_memory_step` cannot see at run time.

It parses the statements that torch/_inductor/codegen/wrapper.py generates (``buf1 = buf0; del buf0  # reuse``,
``buf3 = buf1[0]``, ``reinterpret_tensor(buf0, ...)``) and similar ones in handwritten code.
"""

from __future__ import annotations

import ast
import linecache
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

VIEW_FUNCTIONS = frozenset({"reinterpret_tensor", "alloc_from_pool", "as_strided"})
VIEW_METHODS = frozenset(
    {"view", "t", "as_strided", "detach", "transpose", "permute", "squeeze", "unsqueeze", "expand"}
)
CHECK = "check_memory_step"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class FunctionNames:
    """The names of one function, with line numbers of the file."""

    bound: dict[str, int]
    """First line that binds each name, including parameters."""
    aliases: tuple[tuple[int, str, str], ...]
    """(line, name, name of the aliased value), in the order of lines."""
    deleted: frozenset[str]
    returned: frozenset[str]
    scheduled: frozenset[str]
    """Names in the arguments of its checks."""
    elsewhere: frozenset[str]
    """Names that only other functions of the file bind."""

    made_of: dict[str, list[str]]
    """Aliases of each name."""

    def sharing(self, names: Iterable[str]) -> set[str]:
        """Return `names` and all aliases of their memory in the function."""
        found: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += self.made_of.get(name, ())
        return found

    def aliases_between(self, after: int, last: int) -> tuple[tuple[int, str, str], ...]:
        """Return the aliases of the lines after `after`, up to and including `last`."""
        return self.aliases[bisect_right(self.aliases, (after + 1,)) : bisect_right(self.aliases, (last + 1,))]


def names_at(filename: str, line: int) -> FunctionNames | None:
    """Return the names of the innermost function around `line`, or None if the source cannot be read."""
    parsed = _parsed(filename)
    if parsed is None:
        return None
    tree, functions = parsed
    around = [node for node in functions if node.lineno <= line <= (node.end_lineno or 0)]
    return _read(tree, max(around, key=lambda node: node.lineno) if around else tree)


@lru_cache(maxsize=64)
def _parsed(filename: str) -> tuple[ast.Module, list[Function]] | None:
    lines = linecache.getlines(filename)
    try:
        tree = ast.parse("".join(lines)) if lines else None
    except (SyntaxError, ValueError, RecursionError):
        return None
    return None if tree is None else (tree, [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)])


@lru_cache(maxsize=256)
def _read(tree: ast.Module, scope: ast.AST) -> FunctionNames:
    bound: dict[str, int] = {}
    aliases: list[tuple[int, str, str]] = []
    deleted: set[str] = set()
    returned: set[str] = set()
    scheduled: set[str] = set()
    for node in _inside(scope):
        if isinstance(node, ast.arg):
            bound.setdefault(node.arg, getattr(scope, "lineno", 0))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound[node.id] = min(node.lineno, bound.get(node.id, node.lineno))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del):
            deleted.add(node.id)
        elif isinstance(node, ast.Return) and node.value is not None:
            returned |= {one.id for one in ast.walk(node.value) if isinstance(one, ast.Name)}
        elif isinstance(node, ast.Assign):
            aliases += _aliases(node)
        elif isinstance(node, ast.Call) and _is_check(node.func):
            scheduled |= {
                one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and type(one.value) is str
            }
    stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    elsewhere = stored - bound.keys()
    names = frozenset(deleted), frozenset(returned), frozenset(scheduled), frozenset(elsewhere)
    made_of: defaultdict[str, list[str]] = defaultdict(list)
    for _, name, base in aliases:
        made_of[base].append(name)
    return FunctionNames(bound, tuple(sorted(aliases)), *names, dict(made_of))


def _inside(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes in a function, except those inside nested functions and classes."""
    waiting: list[ast.AST] = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
            waiting += ast.iter_child_nodes(node)


def _aliases(node: ast.Assign) -> Iterator[tuple[int, str, str]]:
    base = _base(node.value)
    if base is not None:
        yield from ((node.lineno, one.id, base) for one in node.targets if isinstance(one, ast.Name))


def _base(value: ast.expr) -> str | None:
    """Return the name whose memory `value` shares, or None."""
    if isinstance(value, ast.Name):
        return value.id
    if isinstance(value, ast.Subscript):
        return _base(value.value)
    if isinstance(value, ast.Call):
        if _called(value.func) in VIEW_FUNCTIONS and value.args:
            return _base(value.args[0])
        if isinstance(value.func, ast.Attribute) and value.func.attr in VIEW_METHODS:
            return _base(value.func.value)
    return None


def _is_check(function: ast.expr) -> bool:
    """Return whether a call is a check, also as ``torch.ops._inductor_debug.check_memory_step.default``."""
    if isinstance(function, ast.Attribute) and function.attr == "default":
        function = function.value
    return _called(function) == CHECK


def _called(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
