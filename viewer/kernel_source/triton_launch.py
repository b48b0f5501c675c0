"""Reads the source, the numbers and the grid of one launch of a Triton kernel."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

from stepscope.tracer.wrapper.kernel_signatures import longest_string
from stepscope.tracer.wrapper.parsed import assigned_calls, parsed
from stepscope.viewer.kernel_source.element_access import Accesses
from stepscope.viewer.kernel_source.intervals import Interval, contents, one, unknown, varying
from stepscope.viewer.kernel_source.triton_accesses import triton_accesses

SizeOf = Callable[[ast.expr], int | None]
"""The number that an expression of the wrapper had; None if it is not known."""
_BLOCK = re.compile(r"[A-Z]\d?_?BLOCK|RSPLIT")
_PROGRAM = re.compile(r"program_id\(([012])\)")


def accesses_of_launch(
    definition: str,
    launch: str,
    pointers: Sequence[str],
    size_of: SizeOf,
    held: Mapping[str, tuple[int, int]],
) -> Accesses:
    """Return the accesses of a kernel that the user wrote; none if `definition` or `launch` has an unknown form.

    `definition` is ``NAME = async_compile.triton(...)``, `launch` the statement that launches it, and `held` the
    smallest and the largest element behind a pointer.
    """
    function, call = _function(definition), _call(launch)
    if function is None or call is None:
        return Accesses([], set())
    parameters = [argument for argument in function.args.args if not _is_constexpr(argument)]
    passed = dict(zip([parameter.arg for parameter in parameters], call.args, strict=False))
    numbers = {name: _number(size_of(expression)) for name, expression in passed.items() if name not in pointers}
    heuristics = next((node for node in function.decorator_list if isinstance(node, ast.Call)), None)
    said = {keyword.arg: keyword.value for keyword in heuristics.keywords} if heuristics else {}
    numbers |= _constants(said.get("triton_meta"))
    configs = _literal(said.get("configs")) or []
    numbers |= _of_configs([config for config in configs if isinstance(config, dict)])
    meta = _literal(said.get("inductor_meta"))
    grid = _grid(meta if isinstance(meta, dict) else {}, [size_of(one) for one in call.args[len(parameters) :]])
    numbers |= {f"*{name}": contents(name, *ends) for name, ends in held.items()}
    return triton_accesses(function, numbers, pointers, grid)


def generated_accesses(definition: str, pointers: Sequence[str], known: Mapping[str, Interval]) -> Accesses:
    """Return the accesses of a kernel that Inductor generated.

    Such a kernel does the same with blocks of any size. It is read with blocks of one element and with as many
    programs as its axes have indices, so that the programs run over exactly these. `known` has the ranges of its
    parameters and, under ``*NAME``, of the contents of a pointer.
    """
    function = _function(definition)
    if function is None:
        return Accesses([], set(pointers))
    blocks = {argument.arg: one(1) for argument in function.args.args if _BLOCK.fullmatch(argument.arg)}
    return triton_accesses(function, {**known, **blocks}, pointers, _grid_of_axes(function, known))


def _grid_of_axes(function: ast.FunctionDef, known: Mapping[str, Interval]) -> list[float]:
    """Return the programs of a generated kernel along each axis for blocks of one element, infinite if unknown."""
    sizes: dict[str, float] = {name: value.low for name, value in known.items() if value.is_one}
    grid = [inf, inf, inf]
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int() as number)):
                sizes[name] = number
            case ast.Assign(targets=[ast.Name(id="rsplit_id")], value=value):
                for axis in _PROGRAM.findall(ast.unparse(value)):
                    grid[int(axis)] = 1
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.BinOp(op=ast.Mult(), right=ast.Name(id=block))):
                axes = [int(axis) for axis in _PROGRAM.findall(ast.unparse(node.value))]
                if axes and name.endswith("offset") and _BLOCK.fullmatch(block):
                    for axis in axes:
                        grid[axis] = 1
                    grid[axes[0]] = sizes.get(f"{name.removesuffix('offset')}numel", inf)
    return grid


def _function(definition: str) -> ast.FunctionDef | None:
    """Return the kernel whose source is the longest text of a definition."""
    tree = parsed(definition)
    call = next((call for _, call in assigned_calls(tree)), None) if tree is not None else None
    source = parsed(longest_string(call)) if call is not None else None
    functions = [node for node in source.body if isinstance(node, ast.FunctionDef)] if source is not None else []
    launched = [node for node in functions if any(isinstance(one, ast.Call) for one in node.decorator_list)]
    return next(iter(launched or functions), None)


def _call(launch: str) -> ast.Call | None:
    tree = parsed(launch.strip())
    statement = tree.body[0] if tree is not None and len(tree.body) == 1 else None
    return statement.value if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else None


def _is_constexpr(argument: ast.arg) -> bool:
    return argument.annotation is not None and "constexpr" in ast.unparse(argument.annotation)


def _constants(meta: ast.expr | None) -> dict[str, Interval]:
    """Return the constants of ``triton_meta``, whose other parts are not literals."""
    if not isinstance(meta, ast.Dict):
        return {}
    pairs = zip(meta.keys, meta.values, strict=True)
    found = next((_literal(value) for key, value in pairs if key and _literal(key) == "constants"), None)
    return {name: _number(number) for name, number in found.items()} if isinstance(found, dict) else {}


def _of_configs(configs: Sequence[Mapping[str, Any]]) -> dict[str, Interval]:
    """Return the ranges of the numbers that autotuning may choose."""
    found = {}
    for name in dict.fromkeys(name for config in configs for name in config):
        numbers = [config.get(name) for config in configs]
        known = [number for number in numbers if isinstance(number, int)]
        if len(known) == len(numbers):
            low, high = min(known), max(known)
            found[name] = Interval(low, high, False, 1, varying("config")) if low < high else one(low)
    return found


def _grid(meta: Mapping[str, Any], passed: Sequence[int | None]) -> list[float]:
    """Return the number of programs along each axis, infinite if it is not known."""
    if meta.get("grid_type") == "FixedGrid":
        return [inf if number is None else number for number in passed[:3]]
    return []


def _number(number: object) -> Interval:
    return one(int(number)) if isinstance(number, int) else unknown("a number of the launch is not in the log")


def _literal(node: ast.expr | None) -> Any:
    try:
        return None if node is None else ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
