"""Records of arguments that are no tensors: sizes, strides, factors, flags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Scalar:
    """One argument of a launch site that is no tensor."""

    position: int | None
    """Among the positional arguments of the call, from 0; None: it is given by its name, or the definition of the
    kernel holds it."""
    name: str | None
    """Name of the kernel's own parameter (``ks0``, ``xnumel``, ``alpha``), where known."""
    expression: str
    """A constant (``1.0``, ``torch.float32``, ``[1, 1]``), or what it is computed from, as Python over the names of
    `Graph.symbols`: ``s77*s77``."""
    type: str | None = None
    """As the kernel's definition, the operator's schema or the constant says: ``int64_t``, ``i32``, ``SymInt``,
    ``constexpr``; None: not known, and the value tells."""


@dataclass(frozen=True)
class InputSize:
    """A symbol of generated C++ code that is a size of one of its inputs."""

    symbol: str
    input: str
    dimension: int


@dataclass(frozen=True)
class Assignment:
    """Values that symbols of a graph had in a call, as columns, in the order in which the call computed them."""

    symbol: list[int]
    """Index into `Graph.symbols`."""
    launches: list[int]
    """How many launches of the call had begun when the symbol got the value."""
    value: list[Any]
    """An integer, a float or a boolean; ``"inf"``, ``"-inf"``, ``"nan"`` for a float that JSON has no form for; None:
    it is no number, or one of more than 64 bits."""


@dataclass(frozen=True)
class CallSymbols:
    """Which values the symbols of calls had, as columns. Calls with the same ones share an assignment."""

    KIND: ClassVar[str] = "call_symbols"

    call: list[int]
    assigned: list[int]
    """Index into `assignments`."""
    assignments: list[Assignment]
