"""Finds the index and the loops of each read and write in a generated C++ kernel.

Every use of a pointer must be one of the ways in which Inductor reads and writes memory. A pointer with another use is
`unread`, and nothing may be concluded about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stepscope.viewer.kernel_source.cpp_parser import body_of
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

_LIKELY = frozenset({"C10_LIKELY", "C10_UNLIKELY"})
_LANES = ("_inner", "_tail")


@dataclass(frozen=True)
class CppUse:
    """One place in a kernel that reads or writes behind a pointer."""

    pointer: str
    is_write: bool
    index: Expression | None
    """None: the index is that of each lane, read from memory."""
    text: str
    loops: tuple[Loop, ...]
    """The loops around it, from the outside, without those over the lanes of a vector."""
    is_sure: bool
    """Every iteration does it; else a mask may keep it from being done."""


@dataclass(frozen=True)
class CppAccesses:
    uses: list[CppUse]
    unread: set[str]
    """Pointers with a use that is not understood."""
    ends: list[tuple[Loop, str, str]]
    """Of each loop: the outermost one around it, its variable, and the text of its end."""


def cpp_accesses(code: str) -> CppAccesses:
    """Of the definition of a kernel. Raises NotUnderstoodError."""
    found, parameters, body = body_of(code)
    walker = _Walker(code, found, {name for name, is_pointer in parameters if is_pointer})
    walker.statements(body.statements, _Place())
    return walker.result()


@dataclass(frozen=True)
class _Place:
    loops: tuple[Loop, ...] = ()
    is_sure: bool = True


class _Walker:
    def __init__(self, code: str, found: list[Token], pointers: set[str]) -> None:
        self.code = code
        self.tokens = found
        self.meanings = {name: name for name in pointers}
        """Pointer, or another name of it -> the parameter."""
        self.uses: list[CppUse] = []
        self.ends: list[tuple[Loop, str, str]] = []
        self.understood: set[int] = set()
        """Tokens that name a pointer."""

    def result(self) -> CppAccesses:
        behind = next((at for at, token in enumerate(self.tokens) if token.text == "{"), 0)
        unread = {
            self.meanings[token.text]
            for at, token in enumerate(self.tokens)
            if at > behind and at not in self.understood and token.text in self.meanings
        }
        return CppAccesses(self.uses, unread, self.ends)

    def statements(self, found: Sequence[Statement], place: _Place) -> None:
        for one in found:
            self.statement(one, place)

    def statement(self, found: Statement, place: _Place) -> None:
        match found:
            case CppBlock():
                self.statements(found.statements, place)
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
        loops = place.loops if found.variable.endswith(_LANES) else (*place.loops, found)
        first, last = found.end
        end = self.code[self.tokens[first].start : self.tokens[last - 1].end]
        self.ends.append((loops[0] if loops else found, found.variable, end))
        self.statement(found.body, replace(place, loops=loops))

    def condition(self, found: If, place: _Place) -> None:
        """The main and the last part of a vectorised loop do the same; other conditions are masks."""
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

    def naming(self, name: str, value: int) -> list[int]:
        """The token before ``= value`` that gives the name."""
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
        for at, one in enumerate(arguments):
            if at not in known:
                self.expression(one, place)

    def known_arguments(self, name: str, arguments: Sequence[Expression], place: _Place) -> set[int]:
        """Those through which a function of PyTorch reads or writes memory: they are noted."""
        match name, arguments:
            case "atomic_add", (Node("&", (Node("index", (Name() as base, index)),)), _) if base.text in self.meanings:
                self.use(base, index, place, is_write=True)
                return {0}
            case "atomic_add_vec", (Name() as base, *_) if base.text in self.meanings:
                self.note(base, None, "", place, is_write=True)
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
        """``pointer + index``, or the pointer alone."""
        match found:
            case Name() if found.text in self.meanings:
                self.note(found, Number("0"), "0", place, is_write=is_write)
                return True
            case Node("+", (Name() as base, index)) if base.text in self.meanings:
                self.use(base, index, place, is_write=is_write)
                return True
        return False

    def use(self, base: Name, index: Expression, place: _Place, *, is_write: bool) -> None:
        self.expression(index, place)
        first, last = base.token + 2, self.end_of(base.token + 1)
        text = self.code[self.tokens[first - 1].end : self.tokens[last - 1].end]
        self.note(base, index, text, place, is_write=is_write)

    def end_of(self, sign: int) -> int:
        """Behind the last token of what follows the sign at ``p[`` or ``p +``: up to the bracket or comma that ends
        it."""
        depth, at = 0, sign + 1
        while at < len(self.tokens):
            text = self.tokens[at].text
            if depth == 0 and text in (",", ")", "]", ";"):
                return at
            depth += (text in ("(", "[", "{")) - (text in (")", "]", "}"))
            at += 1
        return at

    def note(self, base: Name, index: Expression | None, text: str, place: _Place, *, is_write: bool) -> None:
        self.understood.add(base.token)
        self.uses.append(CppUse(self.meanings[base.text], is_write, index, text, place.loops, place.is_sure))


def _called(found: Expression) -> str | None:
    """The last name of the function that is called: ``loadu`` of ``at::vec::Vectorized<float>::loadu``."""
    match found:
        case Node("call", (Name() as function, *_)):
            return function.text.rpartition("::")[2]
        case Node("call", (Node() as function, *_)) if function.kind.startswith("member:"):
            return function.kind.removeprefix("member:")
    return None
