"""Parses single statements of a wrapper: sizes, allocations, copies and custom operators."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from stepscope.tracer.schema.constants import TORCH_NAMESPACES
from stepscope.tracer.schema.graphs import Held, LaunchSite
from stepscope.tracer.wrapper.expressions import dotted, is_constant
from stepscope.tracer.wrapper.parsed import LaunchStatement

WHOLE = "whole"
"""Extent of a tensor of unknown size."""


class Allocation(NamedTuple):
    held: Held
    extent: str | None
    """Part of the storage; None if the form is unknown."""
    is_fixed: bool
    """Whether the size is constant."""


def allocating_call(statement: ast.stmt) -> ast.expr | None:
    """Return the call that allocates the memory, without the views around it."""
    call = statement.value if isinstance(statement, ast.Assign) else None
    while isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Call):
        call = call.args[0]
    return call


def allocation(statement: ast.stmt) -> Allocation:
    """Describe the memory that a statement allocates."""
    call = allocating_call(statement)
    if not isinstance(call, ast.Call) or not call.args:
        return Allocation("uninitialised", None, False)
    function = dotted(call.func) or ""
    held: Held = "written" if function.endswith("zeros") else "uninitialised"
    is_pool = function == "alloc_from_pool"
    size = call.args[3] if is_pool and len(call.args) > 3 else call.args[0]
    is_fixed = not is_pool and all(map(is_constant, call.args[:2]))
    return Allocation(held, extent_of(size, []), is_fixed)


def copies_later(launch: LaunchStatement) -> bool:
    """Return whether a copy returns before it is done, as ``pinned.copy_(on_device, True)`` does."""
    call = launch.statement.value if isinstance(launch.statement, (ast.Expr, ast.Assign)) else None
    if launch.site.kernel != "Tensor.copy_" or not isinstance(call, ast.Call):
        return False
    flags = [*call.args[1:2], *(keyword.value for keyword in call.keywords if keyword.arg == "non_blocking")]
    return any(not (isinstance(flag, ast.Constant) and flag.value is False) for flag in flags)


def layout_checks(call: ast.AST | None) -> list[tuple[ast.expr, ast.expr, ast.expr]]:
    """Return tensor, size and stride of each tensor whose layout a call checks.

    ``assert_size_stride_grouped`` takes a tuple of each; it and ``assert_tensor_metadata`` are in code of torch 2.15.
    """
    if not isinstance(call, ast.Call) or len(call.args) < 3:
        return []
    tensor, size, stride = call.args[:3]
    name = dotted(call.func)
    if name == "assert_size_stride_grouped":
        return list(zip(*(getattr(part, "elts", ()) for part in (tensor, size, stride)), strict=False))
    return [(tensor, size, stride)] if name in ("assert_size_stride", "assert_tensor_metadata") else []


def checked_layouts(statement: ast.stmt) -> dict[str, tuple[ast.expr, bool]]:
    """Return the size of each tensor whose layout a statement checks, and whether size and stride are constants."""
    checks = layout_checks(statement.value if isinstance(statement, ast.Expr) else None)
    return {ast.unparse(name): (size, is_constant(size) and is_constant(stride)) for name, size, stride in checks}


def extent_of(size: ast.expr, offset: list[ast.expr]) -> str:
    """Describe a part of a storage; equal extents have the same elements, in any order."""
    numbers = [member.value for member in getattr(size, "elts", []) if isinstance(member, ast.Constant)]
    is_known = isinstance(size, (ast.Tuple, ast.List)) and len(numbers) == len(size.elts)
    elements = str(prod(int(n) for n in numbers if isinstance(n, int))) if is_known else ast.unparse(size)
    start = ast.unparse(offset[0]) if offset else "0"
    return f"{elements} from {start}"


class Parts:
    """The parts of an allocation that were written; the members of a concatenation are written one by one."""

    def __init__(self, whole: str) -> None:
        self._whole = whole
        self._written: set[str] = set()
        self._is_whole = False

    def add(self, extent: str, anew: bool) -> None:
        """Add a part that a launch has written; with `anew`, earlier contents cannot be used any more."""
        if anew:
            self._written, self._is_whole = set(), False
        self._written.add(extent)
        counts, of = [_elements(part) for part in self._written], _elements(self._whole)
        is_all = of is not None and sum(count or 0 for count in counts) >= of
        self._is_whole |= extent in (WHOLE, self._whole) or is_all

    def hold(self, extent: str, is_being_written: bool) -> bool:
        """Return whether all of a part was written.

        If sizes are symbols, this is assumed, unless the launch also writes to the storage and so may complete it.
        """
        if self._is_whole or extent in self._written:
            return True
        is_known = None not in map(_elements, (*self._written, self._whole))
        return not (is_known or is_being_written)


def _elements(extent: str) -> int | None:
    count = extent.split(" ", 1)[0]
    return int(count) if count.isdecimal() else None


def names_in(expression: ast.expr) -> Iterator[str]:
    yield ast.unparse(expression)
    for node in ast.walk(expression):
        if isinstance(node, ast.Name):
            yield node.id


def variables(expression: ast.expr) -> set[str]:
    """Return the names of the tensors and sizes in an argument."""
    return {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)} - {"reinterpret_tensor"}


def is_custom(site: LaunchSite) -> bool:
    """Return whether a launch calls an operator that neither PyTorch nor Inductor checks for what it changes."""
    namespace = site.kernel.removeprefix("torch.ops.").partition(".")[0]
    return site.kind == "fallback" and site.kernel.startswith("torch.ops.") and namespace not in TORCH_NAMESPACES
