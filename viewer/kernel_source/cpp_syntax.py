"""The statements and expressions of a C++ kernel."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Name:
    text: str
    """The name without template arguments, such as ``at::vec::maximum``."""
    token: int
    """Its first token."""
    template: str = ""
    """Its template arguments."""


@dataclass(frozen=True, slots=True)
class Number:
    text: str


@dataclass(frozen=True, slots=True)
class Node:
    """An operation.

    Its kind is ``call`` (function, arguments…), ``index`` (base, index), ``member:NAME`` (base), ``?`` (three parts),
    a sign with one or two parts, or ``list`` (the parts of braces and of other syntax without a meaning of its own).
    """

    kind: str
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Lambda:
    body: CppBlock


Expression = Name | Number | Node | Lambda


@dataclass(frozen=True, slots=True)
class CppBlock:
    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A loop. It is equal to itself alone."""

    variable: str
    begin: Expression
    limit: Expression
    """The expression that the variable stays below."""
    step: Expression
    body: Statement
    is_parallel: bool


@dataclass(frozen=True, slots=True)
class If:
    test: Expression
    then: Statement
    other: Statement | None


@dataclass(frozen=True, slots=True)
class Declaration:
    name: str
    value: Expression | None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """An expression that is evaluated for its effect, or that is returned."""

    value: Expression


Statement = CppBlock | Loop | If | Declaration | Evaluation
