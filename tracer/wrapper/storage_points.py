"""Finds the points of a wrapper at which storages appear: its inputs, its allocations and the results of launches.

The tracker in `runtime/lifetimes` looks at these storages at run time. Consecutive allocations are one point.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Literal

from stepscope.tracer.schema.memory import StorageKind
from stepscope.tracer.wrapper.expressions import SYMBOL, dotted
from stepscope.tracer.wrapper.parsed import (
    LaunchStatement,
    PointStorages,
    StoragePoint,
    WrapperSource,
    wrapper_functions,
)
from stepscope.tracer.wrapper.statements import allocating_call


def find_storage_points(source: WrapperSource) -> list[StoragePoint]:
    """Return the storage points of all functions of `source` in the order of its text.

    The list is cached and must not be changed.
    """
    if source.storage_points is None:
        source.storage_points = [
            point
            for _, function in wrapper_functions(source.tree)
            for point in (*_inputs(function), *_block(source, function.body))
        ]
    return source.storage_points


def storages_at_points(source: WrapperSource) -> list[PointStorages]:
    """Return the storages of each storage point of `source`, in the same order."""
    return [point.storages for point in find_storage_points(source)]


def _inputs(function: ast.FunctionDef) -> Iterator[StoragePoint]:
    """Yield the point at which the inputs have names: after ``a, b = args``, or at the begin of the function."""
    for statement in function.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.value) == "args":
            names = [n.id for n in ast.walk(statement.targets[0]) if isinstance(n, ast.Name) and not _is_size(n.id)]
            if names:
                yield _point(statement, "after", "input", names)
            return
    renamed = {a.arg: a.arg for a in function.args.args if a.arg not in ("self", "args") and not _is_size(a.arg)}
    last: tuple[ast.stmt, Literal["before", "after"]] = (function.body[0], "before")
    for statement in function.body:  # a graph of Dynamo first gives its inputs other names
        if not (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Name)):
            break
        renamed[statement.value.id] = ast.unparse(statement.targets[0])
        last = statement, "after"
    if renamed:
        yield _point(*last, "input", list(renamed.values()))


def _is_size(name: str) -> bool:
    return SYMBOL.fullmatch(name) is not None


def _block(source: WrapperSource, body: list[ast.stmt], index: str = "") -> Iterator[StoragePoint]:
    """Yield the points below `body`; `index` is that of the current device, such as ``:0``."""
    waiting: list[tuple[str, str]] = []
    last: ast.stmt | None = None
    for statement in body:
        allocated = [
            (event.buffer, device_of(statement, index))
            for event in source.events.get(statement, [])
            if not isinstance(event, LaunchStatement) and event.event in ("allocate", "pool")
        ]
        if allocated:
            waiting += allocated
            last = statement
            continue
        if waiting and last is not None and not _is_check(statement):
            yield _allocations(last, waiting)
            waiting = []
        yield from _returned(source, statement)
        inner = _guarded_index(statement) or index
        for field in ("body", "orelse", "finalbody"):
            yield from _block(source, getattr(statement, field, None) or [], inner)
    if waiting and last is not None:
        yield _allocations(last, waiting)


def _returned(source: WrapperSource, statement: ast.stmt) -> Iterator[StoragePoint]:
    for event in source.events.get(statement, []):
        if isinstance(event, LaunchStatement) and event.bound and isinstance(statement, ast.Assign):
            names = [name for name in event.bound if name.isidentifier()]
            if names:
                yield _point(statement, "after", "returned", names, site=event.site.site)


def _is_check(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and (dotted(call.func) or "").startswith("assert_")


def _allocations(last: ast.stmt, waiting: list[tuple[str, str]]) -> StoragePoint:
    names, devices = zip(*waiting, strict=True)
    return _point(last, "after", "allocated", names, devices)


def _guarded_index(statement: ast.stmt) -> str | None:
    """Return ``:0`` for ``with torch.cuda._DeviceGuard(0):``, and None for other statements."""
    if not isinstance(statement, ast.With):
        return None
    found = re.search(r"_DeviceGuard\((\d+)\)", ast.unparse(statement.items[0].context_expr))
    return f":{found[1]}" if found else None


def device_of(statement: ast.stmt, index: str = "") -> str:
    """Return the device that an allocation names (``cpu``, ``cuda:0``); `index` is that of the current device."""
    call = allocating_call(statement)
    if not isinstance(call, ast.Call):
        return "?"
    for keyword in call.keywords:
        if keyword.arg == "device":
            return str(keyword.value.value) if isinstance(keyword.value, ast.Constant) else ast.unparse(keyword.value)
    found = re.fullmatch(r"(?:\w+\.)*empty_strided_([a-z]+)\w*", dotted(call.func) or "")
    name = found[1] if found else "cpu"
    return name if name == "cpu" else name + index


def _point(
    statement: ast.stmt,
    moment: Literal["before", "after"],
    kind: StorageKind,
    names: Sequence[str],
    devices: Sequence[str] = (),
    site: int | None = None,
) -> StoragePoint:
    expressions = tuple(ast.parse(name, mode="eval").body for name in names)
    return StoragePoint(statement, moment, expressions, PointStorages(kind, tuple(names), tuple(devices), site))
