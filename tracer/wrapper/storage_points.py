"""Where a wrapper's functions meet storages: the tensors that come in, the allocations, what launches return.

Pure. The tracker in `runtime/lifetimes` looks at these storages while the wrapper runs; allocations that follow one
another are looked at together.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stepscope.tracer.runtime.lifetimes.tracker import Place
from stepscope.tracer.schema.records import StorageKind
from stepscope.tracer.wrapper.expressions import SYMBOL, dotted
from stepscope.tracer.wrapper.source import Launch, WrapperSource, wrapper_functions
from stepscope.tracer.wrapper.statements import allocating_call


@dataclass(frozen=True)
class Meeting:
    """A moment at which storages are looked at: before or after a statement."""

    statement: ast.stmt
    moment: str
    """``before`` or ``after`` the statement."""
    expressions: tuple[ast.expr, ...]
    """What is looked at: one tensor each, or what a launch returned."""
    place: Place


def find_meetings(source: WrapperSource) -> list[Meeting]:
    """The meetings of all functions of `source`, in the order of its text; looked for once. Not to be changed."""
    if source.meetings is None:
        source.meetings = [
            meeting
            for _, function in wrapper_functions(source.tree)
            for meeting in (*_inputs(function), *_block(source, function.body))
        ]
    return source.meetings


def places_of(source: WrapperSource) -> list[Place]:
    return [meeting.place for meeting in find_meetings(source)]


def _inputs(function: ast.FunctionDef) -> Iterator[Meeting]:
    """What the function is given: ``a, b = args``, or parameters of its own."""
    for statement in function.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.value) == "args":
            names = [n.id for n in ast.walk(statement.targets[0]) if isinstance(n, ast.Name) and not _is_size(n.id)]
            if names:
                yield _meeting(statement, "after", "input", names)
            return
    renamed = {a.arg: a.arg for a in function.args.args if a.arg not in ("self", "args") and not _is_size(a.arg)}
    last: tuple[ast.stmt, str] = (function.body[0], "before")
    for statement in function.body:  # a graph of Dynamo's gives its inputs other names first
        if not (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Name)):
            break
        renamed[statement.value.id] = ast.unparse(statement.targets[0])
        last = statement, "after"
    if renamed:
        yield _meeting(*last, "input", list(renamed.values()))


def _is_size(name: str) -> bool:
    return SYMBOL.fullmatch(name) is not None


def _block(source: WrapperSource, body: list[ast.stmt], index: str = "") -> Iterator[Meeting]:
    """`index` is that of the current device, ``:0``."""
    waiting: list[tuple[str, str]] = []
    last: ast.stmt | None = None
    for statement in body:
        allocated = [
            (event.buffer, device_of(statement, index))
            for event in source.events.get(statement, [])
            if not isinstance(event, Launch) and event.event in ("allocate", "pool")
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


def _returned(source: WrapperSource, statement: ast.stmt) -> Iterator[Meeting]:
    for event in source.events.get(statement, []):
        if isinstance(event, Launch) and event.bound and isinstance(statement, ast.Assign):
            names = [name for name in event.bound if name.isidentifier()]
            if names:
                yield _meeting(statement, "after", "returned", names, site=event.site.site)


def _is_check(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and (dotted(call.func) or "").startswith("assert_")


def _allocations(last: ast.stmt, waiting: list[tuple[str, str]]) -> Meeting:
    names, devices = zip(*waiting, strict=True)
    return _meeting(last, "after", "allocated", names, devices)


def _guarded_index(statement: ast.stmt) -> str | None:
    """``:0`` for ``with torch.cuda._DeviceGuard(0):``."""
    if not isinstance(statement, ast.With):
        return None
    found = re.search(r"_DeviceGuard\((\d+)\)", ast.unparse(statement.items[0].context_expr))
    return f":{found[1]}" if found else None


def device_of(statement: ast.stmt, index: str = "") -> str:
    """``cpu`` or ``cuda:0``, as an allocation says it; `index` is that of the current device."""
    call = allocating_call(statement)
    if not isinstance(call, ast.Call):
        return "?"
    for keyword in call.keywords:
        if keyword.arg == "device":
            return str(keyword.value.value) if isinstance(keyword.value, ast.Constant) else ast.unparse(keyword.value)
    found = re.fullmatch(r"(?:\w+\.)*empty_strided_([a-z]+)\w*", dotted(call.func) or "")
    name = found[1] if found else "cpu"
    return name if name == "cpu" else name + index


def _meeting(
    statement: ast.stmt,
    moment: str,
    kind: StorageKind,
    names: Sequence[str],
    devices: Sequence[str] = (),
    site: int | None = None,
) -> Meeting:
    expressions = tuple(ast.parse(name, mode="eval").body for name in names)
    return Meeting(statement, moment, expressions, Place(kind, tuple(names), tuple(devices), site))
