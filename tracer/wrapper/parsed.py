"""The result of parsing a wrapper: its functions, launches, memory statements and storage points."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from stepscope.tracer.schema.graphs import LaunchSite, MemoryStatement
from stepscope.tracer.schema.memory import StorageKind
from stepscope.tracer.wrapper.symbols import Binding, ScalarArgument

NOT_BODIES = frozenset({"get_args", "benchmark_compiled_module", "__init__", "recursively_apply_fns"})
"""Functions of a wrapper module that contain no launches of a graph."""


@dataclass(eq=False)
class LaunchStatement:
    """A launch site with the syntax that instrumentation needs."""

    site: LaunchSite
    statement: ast.stmt
    expressions: list[ast.expr]
    """One expression for each of `site.arguments`, without the trailing ones that the statement itself binds."""
    bound: list[str]
    view_of: int | None = None
    """Index of the argument whose memory the bound names share, or None if they have their own memory."""
    scalars: list[ScalarArgument] = field(default_factory=list)
    """Arguments that are not tensors, with their syntax."""


@dataclass(frozen=True)
class PointStorages:
    """The storages that can be seen at one point of a wrapper."""

    kind: StorageKind
    names: tuple[str, ...]
    devices: tuple[str, ...] = ()
    """Device of each allocation; empty for inputs and results."""
    site: int | None = None
    """Launch site that returned the storages; None for other kinds."""


@dataclass(frozen=True)
class StoragePoint:
    """A point of a wrapper at which the tracker looks at storages: before or after a statement."""

    statement: ast.stmt
    moment: Literal["before", "after"]
    expressions: tuple[ast.expr, ...]
    """Expressions of the tensors, or of the results of a launch."""
    storages: PointStorages


@dataclass
class WrapperSource:
    aot_id: str | None
    functions: list[str] = field(default_factory=list)
    """Qualified names of the functions with launches or memory statements, such as ``Runner.call``."""
    launches: list[LaunchStatement] = field(default_factory=list)
    memory: list[MemoryStatement] = field(default_factory=list)
    events: dict[ast.stmt, list[LaunchStatement | MemoryStatement]] = field(default_factory=dict)
    """Launches and memory statements by the statement of the source."""
    unknown: list[str] = field(default_factory=list)
    """Unknown calls in the condition of a branch or a loop, which cannot be launches, as ``function: text``."""
    symbols: list[str] = field(default_factory=list)
    """Names of numbers that vary from call to call, of all functions."""
    bindings: list[Binding] = field(default_factory=list)
    """Statements that give the symbols their values."""
    dynamic: bool = False
    cpp_wrapper: bool = False
    is_cuda: bool = False
    tree: ast.Module = field(default_factory=lambda: ast.Module([], []))
    storage_points: list[StoragePoint] | None = None
    """Cache of `storage_points.find_storage_points`; None before its first call."""

    @property
    def sites(self) -> list[LaunchSite]:
        return [launch.site for launch in self.launches]


def parsed(code: str) -> ast.Module | None:
    """Return the syntax of generated code, or None if it is not Python that can be read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in strings
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def assigned_calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """Yield each name of a module that is assigned what a call returns, as kernels are, with the call."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value


def function_named(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    """Return the function of a wrapper that has this name without its class."""
    return next((node for _, node in wrapper_functions(tree) if node.name == name), None)


def wrapper_functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the functions that a wrapper runs (`call`, partitions, subgraphs) with their qualified names."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name not in NOT_BODIES:
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef) and member.name not in NOT_BODIES:
                    yield f"{node.name}.{member.name}", member
