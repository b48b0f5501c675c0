"""Reads the source, the numbers and the grid of one launch of a user's own Triton kernel out of a generated wrapper."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

from stepscope.viewer.kernel_source.intervals import HELD, Interval, one, unknown
from stepscope.viewer.kernel_source.triton_ranges import TritonUse, uses

SizeOf = Callable[[ast.expr], int | None]
"""The number that an expression of the wrapper had; None: not known."""


def uses_of_launch(
    definition: str,
    launch: str,
    pointers: Sequence[str],
    size_of: SizeOf,
    held: Mapping[str, tuple[int, int]],
) -> list[TritonUse]:
    """`definition`: ``NAME = async_compile.triton(...)``; `launch`: the statement that launches it; `held`: smallest
    and largest element behind a pointer. Empty where they have no form that is known."""
    function, call = _function(definition), _call(launch)
    if function is None or call is None:
        return []
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
    numbers |= {
        f"*{name}": Interval(low, high, False, 0, frozenset({HELD + name})) for name, (low, high) in held.items()
    }
    return uses(function, numbers, pointers, grid)


def parsed(code: str) -> ast.Module | None:
    """None: it is no Python that can be read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in strings
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _function(definition: str) -> ast.FunctionDef | None:
    """The kernel in the longest text of a definition."""
    tree = parsed(definition)
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)] if tree is not None else []
    source = parsed(max((text for text in texts if isinstance(text, str)), key=len, default=""))
    functions = [node for node in source.body if isinstance(node, ast.FunctionDef)] if source is not None else []
    return next((node for node in functions if any(isinstance(one, ast.Call) for one in node.decorator_list)), None)


def _call(launch: str) -> ast.Call | None:
    tree = parsed(launch.strip())
    statement = tree.body[0] if tree is not None and len(tree.body) == 1 else None
    return statement.value if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else None


def _is_constexpr(argument: ast.arg) -> bool:
    return argument.annotation is not None and "constexpr" in ast.unparse(argument.annotation)


def _constants(meta: ast.expr | None) -> dict[str, Interval]:
    """Of ``triton_meta``, whose other parts are no literals."""
    if not isinstance(meta, ast.Dict):
        return {}
    pairs = zip(meta.keys, meta.values, strict=True)
    found = next((_literal(value) for key, value in pairs if key and _literal(key) == "constants"), None)
    return {name: _number(number) for name, number in found.items()} if isinstance(found, dict) else {}


def _of_configs(configs: Sequence[Mapping[str, Any]]) -> dict[str, Interval]:
    """Numbers that autotuning may choose."""
    found = {}
    for name in dict.fromkeys(name for config in configs for name in config):
        numbers = [config.get(name) for config in configs]
        known = [number for number in numbers if isinstance(number, int)]
        if len(known) == len(numbers):
            varies = frozenset({"config"}) if min(known) < max(known) else frozenset[str]()
            found[name] = Interval(min(known), max(known), min(known) == max(known), 1, varies)
    return found


def _grid(meta: Mapping[str, Any], passed: Sequence[int | None]) -> list[float]:
    """How many programs there are along each axis; infinite: not known."""
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
