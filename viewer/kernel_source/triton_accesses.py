"""Finds what a Triton kernel reads and writes behind its pointers, from its source and the numbers of a launch.

Kernels that the user wrote and kernels that Inductor generated are read alike. For a loop, only its own variable is
followed.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace

from stepscope.viewer.kernel_source.element_access import Accesses, Axis, ElementAccess, normal
from stepscope.viewer.kernel_source.index_ranges import AXES, SAME, Mask, Names, both, ends_of, last_name, opposite
from stepscope.viewer.kernel_source.intervals import Interval, one, turns, unknown

_MOST_STATEMENTS = 4000
_ALWAYS = Mask({}, {}, True, True)


def triton_accesses(
    function: ast.FunctionDef, numbers: Mapping[str, Interval], pointers: Sequence[str], grid: Sequence[float]
) -> Accesses:
    """Return the accesses of a kernel.

    `numbers` has the ranges of its other parameters and, under ``*NAME``, of the contents of a pointer. `grid` is the
    number of programs along each axis.
    """
    reader = _Reader({**numbers, **{name: replace(one(0), base=name) for name in pointers}}, grid)
    try:
        reader.block(function.body)
    except (RecursionError, OverflowError):
        return Accesses([], set(pointers))
    followed = {access.pointer for access in reader.found}
    return Accesses([reader.found], reader.lost | (set(pointers) - followed if reader.loses_pointers else set()))


class _Reader:
    """Walks the statements of a kernel."""

    def __init__(self, parameters: Mapping[str, Interval], grid: Sequence[float]) -> None:
        self.found: list[ElementAccess] = []
        self.lost: set[str] = set()
        """Pointers that are passed to where they are not followed."""
        self.loses_pointers = False
        self._names = Names(parameters, grid)
        self._axes: dict[str, Axis] = {}
        """Axes that a generated kernel runs over, by the name of their index."""
        self._is_sure = True
        """The current statement runs in each program."""
        self._is_reached = True
        """The loops around the current statement have iterations."""
        self._left = _MOST_STATEMENTS

    def block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self._left -= 1
            if self._left < 0:
                self.loses_pointers = True
                return
            self._statement(statement)

    def _statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._assign(name, value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                self._assign(name, value)
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                self._assign(name, ast.BinOp(ast.Name(name, ast.Load()), op, value))
            case ast.If():
                self._branch(statement)
            case ast.For(target=ast.Name(id=name), iter=ast.Call() as call):
                self._uses(call)
                self._loop(statement.body, name, self._turns(call))
            case ast.For() | ast.While():
                self._loop(statement.body, None, unknown("it depends on a loop that is not followed"))
            case ast.Return():
                self._is_sure = False
            case _:
                for node in ast.walk(statement):
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                        self._names.define(node.id, unknown(f"{node.id} is assigned in a way that is not followed"))
                for expression in ast.iter_child_nodes(statement):
                    if isinstance(expression, ast.expr):
                        self._uses(expression)

    def _assign(self, name: str, value: ast.expr) -> None:
        self._uses(value)
        version = self._names.define(name, self._names.renamed(value))
        if name in AXES:
            size = ast.Name(f"{name.removesuffix('index')}numel", ast.Load())
            is_parallel = not name.startswith("r")
            self._axes[name] = Axis(version, ast.Constant(0), self._names.renamed(size), ast.Constant(1), is_parallel)

    def _value(self, node: ast.expr) -> Interval:
        return self._names.value(self._names.renamed(node))

    def _branch(self, statement: ast.If) -> None:
        self._uses(statement.test)
        test = self._names.renamed(statement.test)
        value = self._names.value(test)
        if value.is_one and not value.varies_with:
            self.block(statement.body if value.low else statement.orelse)
            return
        names, was_sure, guards, before = self._names, self._is_sure, self._names.guards, dict(self._names.now)
        self._is_sure = False
        names.guards = both(guards, names.mask(test).clips)
        self.block(statement.body)
        after, names.now = names.now, dict(before)
        contrary = opposite(test)
        names.guards = both(guards, names.mask(contrary).clips if contrary is not None else {})
        self.block(statement.orelse)
        names.guards = guards
        for name in after.keys() | names.now.keys():
            if after.get(name) != names.now.get(name):
                names.define(name, unknown(f"{name} does not have the same value in both branches"))
        leaves = any(isinstance(node, ast.Return) for node in ast.walk(statement))
        self._is_sure = was_sure and not leaves

    def _turns(self, call: ast.Call) -> Interval:
        """Return the range of the variable of a loop over ``range``, ``tl.range`` or ``tl.static_range``."""
        bounds = [self._value(bound) for bound in call.args]
        if last_name(call.func) not in ("range", "static_range") or not 1 <= len(bounds) <= 3:
            return unknown("it depends on a loop that is not followed")
        first, end = (one(0), bounds[0]) if len(bounds) == 1 else (bounds[0], bounds[1])
        return turns(first, end, bounds[2] if len(bounds) == 3 else one(1), f"loop@{len(self._names.meanings)}")

    def _loop(self, body: Sequence[ast.stmt], variable: str | None, values: Interval) -> None:
        nodes = [node for statement in body for node in ast.walk(statement)]
        names = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        bases = {name: self._value(ast.Name(name, ast.Load())).base for name in names}
        self._forget(bases)
        if variable is not None:
            self._names.define(variable, values)
        was_reached = self._is_reached
        self._is_reached = was_reached and values.exact
        self.block(body)
        self._is_reached = was_reached
        self._forget(bases)

    def _forget(self, bases: Mapping[str, str | None]) -> None:
        for name, base in bases.items():
            self._axes.pop(name, None)
            self._names.define(name, unknown(f"{name} changes from turn to turn of a loop", base))

    def _uses(self, expression: ast.expr) -> None:
        for node in ast.walk(expression):
            if isinstance(node, ast.Call):
                self._call(node)

    def _call(self, call: ast.Call) -> None:
        name = last_name(call.func)
        is_atomic = name.startswith("atomic_")
        if not call.args or not (name in ("load", "store") or is_atomic):
            self._pass_on(call, name)
            return
        position = 1 if name == "load" else 3 if name == "atomic_cas" else 2
        named = {keyword.arg: keyword.value for keyword in call.keywords}
        mask = named.get("mask", call.args[position] if len(call.args) > position and name != "atomic_cas" else None)
        meant = _ALWAYS if mask is None else self._names.mask(self._names.renamed(mask))
        for is_write in (False, True) if is_atomic else (name == "store",):
            self._access(call.args[0], meant, is_write)

    def _access(self, written: ast.expr, mask: Mask, is_write: bool) -> None:
        place, is_whole = self._names.place(self._names.renamed(written), mask)
        if place.base is None:
            self.loses_pointers = True
            return
        index = _index(written, place.base)
        renamed = None if index is None else self._names.renamed(index)
        text = ast.unparse(written)
        ends = ends_of(place, text, is_whole and self._is_sure and self._is_reached)
        # What a loop of its own runs over is never an axis that two accesses share.
        axes = tuple(axis if axis.is_parallel else replace(axis) for axis in self._axes.values())
        self.found.append(
            ElementAccess(
                place.base, is_write, renamed, text if index is None else normal(index), axes,
                mask.is_plain and self._is_sure, ends, self._names.meanings,
            )
        )  # fmt: skip

    def _pass_on(self, call: ast.Call, name: str) -> None:
        if name in SAME:
            return
        for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
            base = self._value(argument).base
            if base is not None:
                self.lost.add(base)


def _index(written: ast.expr, pointer: str) -> ast.expr | None:
    """Return the index in ``pointer + index``; None if it is written in another way."""
    match written:
        case ast.Name(id=name) if name == pointer:
            return ast.Constant(0)
        case ast.BinOp(left=ast.Name(id=name), op=ast.Add(), right=index) if name == pointer:
            return index
    return None
