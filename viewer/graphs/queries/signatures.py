"""Reads the signatures of graphs as PyTorch logs them: names of inputs, and what AOTAutograd says that each is."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

_DEFINITION = re.compile(r"^[ \t]*def forward\(", re.MULTILINE)
_RETURNED = re.compile(r"^[ \t]*return \(\n(.*?)^[ \t]*\)", re.MULTILINE | re.DOTALL)
_CALL = re.compile(r"^[ \t]*def call\(.*?(?=^[ \t]*def |\Z)", re.MULTILINE | re.DOTALL)
_INPUTS = re.compile(r"^[ \t]+([\w, ]+?),? = args$", re.MULTILINE)
_RESULTS = re.compile(r"^[ \t]+return (\(.*\))[ \t]*$", re.MULTILINE)
_SIZES = re.compile(r"(\w+)\[(.*?)\]")
_BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}


@dataclass(frozen=True)
class Placeholder:
    """An input of a graph."""

    name: str
    annotation: str
    """Type as the graph states it, such as ``f32[8, 16][16, 1]cpu`` or ``Sym(s0)``; empty if it states none."""
    role: str
    """What AOTAutograd says about it, such as ``PlainAOTInput(idx=0)``; empty if it says nothing."""


def placeholders(graph: str) -> list[Placeholder]:
    """Return the inputs of the first ``forward`` of a graph that is printed as code, without ``self``."""
    start = _DEFINITION.search(graph)
    if start is None:
        return []
    found: list[list[str]] = []
    depth, is_name = 0, False
    for kind, text in _tokens(graph[start.end() - 1 :]):
        if kind == tokenize.OP:
            depth += _BRACKETS.get(text, 0)
            if depth == 0:
                break
            is_name = depth == 1 and text in "(,"
        elif kind == tokenize.NAME and is_name:
            found.append([text, "", ""])
            is_name = False
        elif kind == tokenize.STRING and found:
            found[-1][1] = text.strip("'\"")
        elif kind == tokenize.COMMENT and found:
            found[-1][2] = text.lstrip("# ")
    return [Placeholder(*parts) for parts in found if parts[0] != "self"]


def _tokens(code: str) -> Iterator[tuple[int, str]]:
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            yield token.type, token.string
    except (tokenize.TokenError, SyntaxError):
        return


def result_roles(graph: str) -> list[str]:
    """Return what AOTAutograd says about each output of a graph, or an empty list if it says nothing."""
    returned = _RETURNED.search(graph)
    lines = returned[1].splitlines() if returned else ()
    return [line.partition("#")[2].strip() for line in lines if line.strip()]


def code_inputs(code: str) -> list[str]:
    """Return the names of the inputs of generated code, or an empty list if they cannot be read."""
    call = _CALL.search(code)
    if call is None:
        return [placeholder.name for placeholder in placeholders(code)]
    found = _INPUTS.search(call[0])
    return [name.strip() for name in found[1].split(",")] if found else []


def call_code(code: str) -> str:
    """Return the code of the function ``call`` of a generated wrapper, or "" if it has none."""
    found = _CALL.search(code)
    return found[0] if found else ""


def code_results(code: str) -> list[str | None]:
    """Return the name of the buffer in each output of a generated wrapper; None for an output that is no buffer."""
    return [_buffer(item) for item in _results(code)]


def returned_inputs(code: str) -> list[str]:
    """Return the inputs that a generated wrapper returns as they stand, and not as a view."""
    inputs = set(code_inputs(code))
    return [item.id for item in _results(code) if isinstance(item, ast.Name) and item.id in inputs]


def _results(code: str) -> list[ast.expr]:
    found = _RESULTS.findall(call_code(code))
    try:
        returned = ast.parse(found[-1], mode="eval").body if found else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return returned.elts if isinstance(returned, ast.Tuple) else []


def _buffer(expression: ast.expr) -> str | None:
    while isinstance(expression, ast.Call) and expression.args:
        expression = expression.args[0]
    return expression.id if isinstance(expression, ast.Name) else None


def may_be_same(one: Placeholder, other: Placeholder) -> bool:
    """Return whether two graphs may mean the same input. Names of symbols are of their compile and not compared."""
    sizes = [_SIZES.match(placeholder.annotation) for placeholder in (one, other)]
    if sizes[0] is None or sizes[1] is None:
        return True
    if sizes[0][1] != sizes[1][1]:
        return False
    left, right = ([size.strip() for size in found[2].split(",")] for found in sizes if found is not None)
    numbers = [(a, b) for a, b in zip(left, right, strict=False) if a.isdecimal() and b.isdecimal()]
    return len(left) == len(right) and all(a == b for a, b in numbers)
