"""Reads the arguments of nodes, as a record holds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stepscope.tracer.judge.record import Json
from stepscope.tracer.judge.targets import CannotJudge, doubled

Lookup = Callable[[str], Any]
Read = Callable[[Lookup, Lookup], Any]
"""Returns an argument, given functions that return the values of nodes and of symbols."""
_MADE: dict[str, Callable[[list[str], list[Any]], Any]] = {
    "list": lambda names, members: members,
    "tuple": lambda names, members: tuple(members),
    "slice": lambda names, members: slice(*members),
    "dict": lambda names, members: dict(zip(names, members, strict=True)),
}


def rounded(argument: Json, dtype: str) -> Json:
    """Return an argument, rounded to a dtype if it is a number."""
    import torch

    value = float.fromhex(argument["float"]) if isinstance(argument, dict) and "float" in argument else argument
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return argument
    return {"float": float(torch.tensor(value, dtype=torch.float64).to(getattr(torch, dtype))).hex()}


def reader_of(argument: Json, double: bool) -> Read:
    """Return what reads an argument; with `double`, dtypes of floating point become float64 (complex128).

    What follows from no node and no symbol is decoded once. Raises CannotJudge if the argument is of an unknown kind.
    """
    if not isinstance(argument, dict):
        return lambda node, symbol: argument
    ((kind, inner),) = argument.items()
    if kind == "node":
        return lambda node, symbol: node(inner)
    if kind == "symbol":
        return lambda node, symbol: symbol(inner)
    if kind not in _MADE:
        found = _plain(kind, inner, double)
        return lambda node, symbol: found
    names, values = (list(inner), list(inner.values())) if kind == "dict" else ([], inner)
    members = [reader_of(one, double) for one in values]
    made = _MADE[kind]

    def read(node: Lookup, symbol: Lookup) -> Any:
        return made(names, [one(node, symbol) for one in members])

    if any(map(_depends, values)):
        return read
    whole = read(_nothing, _nothing)
    return lambda node, symbol: whole


def _depends(argument: Json) -> bool:
    if not isinstance(argument, dict):
        return False
    ((kind, inner),) = argument.items()
    values = inner.values() if kind == "dict" else inner
    return kind in ("node", "symbol") or (kind in _MADE and any(map(_depends, values)))


def _nothing(name: str) -> Any:
    raise AssertionError(f"{name} is in an argument that has no nodes and no symbols")


def _plain(kind: str, inner: Any, double: bool) -> Any:
    import torch

    if kind == "float":
        return float.fromhex(inner)
    if kind == "complex":
        return complex(*map(float.fromhex, inner))
    if kind == "device":
        return torch.device(inner)
    found = getattr(torch, inner, None) if kind in ("dtype", "layout", "memory_format") else None
    if found is None:
        raise CannotJudge(f"the argument {inner} is of a kind that the judge does not know")
    return doubled(found) if double and kind == "dtype" else found
