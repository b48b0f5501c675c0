"""Finds the index and the loops of each read and write in a generated C++ kernel.

Every use of a pointer must be one of the ways in which Inductor reads and writes memory. A pointer with another use is
`unread`, and nothing may be concluded about it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stepscope.viewer.kernel_source.cpp_expressions import python_of
from stepscope.viewer.kernel_source.cpp_parser import ASSIGNING, body_of
from stepscope.viewer.kernel_source.cpp_syntax import (
    CppBlock,
    Declaration,
    Evaluation,
    Expression,
    If,
    Lambda,
    Loop,
    Name,
    Node,
    Number,
    Statement,
)
from stepscope.viewer.kernel_source.cpp_tokens import NotUnderstoodError, Token
from stepscope.viewer.kernel_source.element_access import Accesses, Axis, ElementAccess, normal
from stepscope.viewer.kernel_source.index_ranges import Names, ends_of
from stepscope.viewer.kernel_source.intervals import Interval, one, turns, unknown

_LIKELY = frozenset({"C10_LIKELY", "C10_UNLIKELY"})
_LANES = ("_inner", "_tail")


def cpp_accesses(code: str, known: Mapping[str, Interval]) -> Accesses:
    """Return the accesses of the definition of a kernel.

    `known` has the ranges of its parameters and, under ``*NAME``, of the contents of a pointer. Raises
    NotUnderstoodError.
    """
    found, parameters, body = body_of(code)
    pointers = {name: replace(one(0), base=name) for name, is_pointer in parameters if is_pointer}
    walker = _Walker(found, set(pointers), Names({**known, **pointers}))
    walker.statements(body.statements, _Place())
    return walker.result()


@dataclass(frozen=True)
class _Place:
    axes: tuple[Axis, ...] = ()
    """The loops around it, from the outside, without those over the lanes of a vector."""
    is_sure: bool = True
    """Every iteration comes here; else a mask may exclude it."""


class _Walker:
    def __init__(self, found: list[Token], pointers: set[str], names: Names) -> None:
        self.tokens = found
        self.meanings = {name: name for name in pointers}
        """The parameter that a name of a pointer stands for."""
        self.names = names
        self.nests: dict[Axis | None, list[ElementAccess]] = {}
        """Accesses by the outermost loop around them."""
        self.understood: set[int] = set()
        """Tokens that name a pointer."""
        self.changing = {found[at].text for at in range(1, len(found) - 1) if _changes(*found[at - 1 : at + 2])}
        """Variables that are assigned more than once."""

    def result(self) -> Accesses:
        behind = next((at for at, token in enumerate(self.tokens) if token.text == "{"), 0)
        unread = {
            self.meanings[token.text]
            for at, token in enumerate(self.tokens)
            if at > behind and at not in self.understood and token.text in self.meanings
        }
        return Accesses(list(self.nests.values()), unread)

    def statements(self, found: Sequence[Statement], place: _Place) -> None:
        for statement in found:
            self.statement(statement, place)

    def statement(self, found: Statement, place: _Place) -> None:
        match found:
            case CppBlock():
                before = dict(self.names.now)
                self.statements(found.statements, place)
                self.names.now = before
            case Loop():
                self.loop(found, place)
            case If():
                self.condition(found, place)
            case Declaration():
                self.declaration(found, place)
            case Evaluation():
                self.expression(found.value, place)

    def loop(self, found: Loop, place: _Place) -> None:
        for part in (found.begin, found.limit, found.step):
            self.expression(part, place)
        before = dict(self.names.now)
        begin, end, step = (python_of(part, before) for part in (found.begin, found.limit, found.step))
        version = self.names.define(found.variable, self.turns(found.variable, begin, end))
        if not found.variable.endswith(_LANES):
            place = replace(place, axes=(*place.axes, Axis(version, begin, end, step, found.is_parallel)))
        self.statement(found.body, place)
        self.names.now = before

    def turns(self, variable: str, begin: ast.expr, end: ast.expr) -> ast.expr | Interval:
        """Return the meaning of the variable of a loop.

        The loop over the rest of a vectorised one goes on with its variable, which takes all elements of each vector.
        """
        outer = variable.removesuffix("_inner").removesuffix("_tail")
        if variable.endswith("_inner"):
            return one(0)
        if outer != variable and outer in self.names.now:
            return ast.Name(self.names.now[outer], ast.Load())
        first, last = self.names.value(begin), self.names.value(end)
        if first.is_one and last.is_one and first.low >= last.low:
            return unknown("a loop has no iterations")
        return turns(first, last, one(1), f"loop@{len(self.names.meanings)}")

    def condition(self, found: If, place: _Place) -> None:
        """Read a branch. The main and the last part of a vectorised loop do the same; other conditions are masks."""
        self.expression(found.test, place)
        is_range = _called(found.test) in _LIKELY
        inside = place if is_range else replace(place, is_sure=False)
        self.statement(found.then, inside)
        if found.other is not None:
            self.statement(found.other, replace(place, is_sure=False))

    def declaration(self, found: Declaration, place: _Place) -> None:
        value = found.value
        if isinstance(value, Name) and value.text in self.meanings:
            self.understood |= {value.token, *self.naming(found.name, value.token)}
            self.meanings[found.name] = self.meanings[value.text]
        elif found.name in self.meanings:
            raise NotUnderstoodError
        elif value is not None:
            self.expression(value, place)
        is_known = value is not None and found.name not in self.changing
        meaning = python_of(value, self.names.now) if value is not None and is_known else None
        self.names.define(found.name, meaning or unknown("its index is read from memory"))

    def naming(self, name: str, value: int) -> list[int]:
        """Return the token before ``= value`` that gives the name."""
        at = value - 2
        return [at] if at >= 0 and self.tokens[at].text == name else []

    def expression(self, found: Expression, place: _Place) -> None:
        match found:
            case Lambda():
                self.statements(found.body.statements, replace(place, is_sure=False))
            case Node("index", (Name() as base, index)) if base.text in self.meanings:
                self.use(base, index, place, is_write=False)
            case Node(("=" | "+=" | "-=" | "*=" | "/=" | "&=" | "|=" | "^=") as sign, (target, value)):
                self.expression(value, place)
                self.assignment(sign, target, place)
            case Node("call"):
                self.call(found, place)
            case Node():
                for part in found.parts:
                    self.expression(part, place)

    def assignment(self, sign: str, target: Expression, place: _Place) -> None:
        match target:
            case Node("index", (Name() as base, index)) if base.text in self.meanings:
                if sign != "=":
                    self.use(base, index, place, is_write=False)
                self.use(base, index, place, is_write=True)
            case _:
                self.expression(target, place)

    def call(self, found: Node, place: _Place) -> None:
        function, *arguments = found.parts
        name = _called(found) or ""
        if isinstance(function, Lambda):  # called where it stands
            self.statements(function.body.statements, place)
        elif isinstance(function, Node):
            self.expression(function, place)
        known = self.known_arguments(name, arguments, place)
        for at, argument in enumerate(arguments):
            if at not in known:
                self.expression(argument, place)

    def known_arguments(self, name: str, arguments: Sequence[Expression], place: _Place) -> set[int]:
        """Note the arguments through which a function of PyTorch accesses memory, and return their positions."""
        match name, arguments:
            case "atomic_add", (Node("&", (Node("index", (Name() as base, index)),)), _) if base.text in self.meanings:
                self.use(base, index, place, is_write=True)
                return {0}
            case "atomic_add_vec", (Name() as base, *_) if base.text in self.meanings:
                self.note(base, None, place, is_write=True)
                return {0}
            case "transpose_mxn", (source, _, target, *_):
                found = self.behind(source, place, is_write=False), self.behind(target, place, is_write=True)
                return {at for at, is_known in zip((0, 2), found, strict=True) if is_known}
            case (("loadu" | "load" | "from" | "store"), (first, *_)) if self.behind(
                first, place, is_write=name == "store"
            ):
                return {0}
        return set()

    def behind(self, found: Expression, place: _Place, *, is_write: bool) -> bool:
        """Note an access at ``pointer + index`` or at the pointer alone; return whether it has this form."""
        match found:
            case Name() if found.text in self.meanings:
                self.note(found, Number("0"), place, is_write=is_write)
                return True
            case Node("+", (Name() as base, index)) if base.text in self.meanings:
                self.use(base, index, place, is_write=is_write)
                return True
        return False

    def use(self, base: Name, index: Expression, place: _Place, *, is_write: bool) -> None:
        self.expression(index, place)
        self.note(base, index, place, is_write=is_write)

    def note(self, base: Name, index: Expression | None, place: _Place, *, is_write: bool) -> None:
        """Note an access at `index`, which is None for that of each lane, read from memory."""
        self.understood.add(base.token)
        renamed = None if index is None else python_of(index, self.names.now)
        text = "" if index is None else normal(python_of(index, {}))
        values = unknown("its index is read from memory") if renamed is None else self.names.value(renamed)
        ends = ends_of(values, text, place.is_sure)
        access = ElementAccess(
            self.meanings[base.text], is_write, renamed, text, place.axes, place.is_sure, ends, self.names.meanings
        )
        self.nests.setdefault(place.axes[0] if place.axes else None, []).append(access)


def _changes(before: Token, name: Token, sign: Token) -> bool:
    """Return whether a variable is assigned where it is not declared."""
    is_declared = before.kind == "name" or before.text in (">", "*", "&")
    return name.kind == "name" and sign.text in ASSIGNING and not is_declared


def _called(found: Expression) -> str | None:
    """Return the last name of the called function, ``loadu`` for ``at::vec::Vectorized<float>::loadu``."""
    match found:
        case Node("call", (Name() as function, *_)):
            return function.text.rpartition("::")[2]
        case Node("call", (Node() as function, *_)) if function.kind.startswith("member:"):
            return function.kind.removeprefix("member:")
    return None
