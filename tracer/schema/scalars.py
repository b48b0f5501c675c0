"""Records of arguments that are not tensors: sizes, strides, factors, flags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from stepscope.tracer.schema.record import Record


@dataclass(frozen=True)
class Scalar:
    """One argument of a launch site that is not a tensor."""

    position: int | None
    """The position among the positional arguments of the call, counted from 0; None if the argument is passed by
    name, or is part of the kernel's definition."""
    name: str | None
    """The kernel's name for this parameter (``ks0``, ``xnumel``, ``alpha``); None if it is unknown."""
    expression: str
    """A constant (``1.0``, ``torch.float32``, ``[1, 1]``), or a Python expression over the names in
    `Graph.symbols` (``s77*s77``)."""
    type: str | None = None
    """The type according to the kernel's definition, the operator's schema or the constant: ``int64_t``, ``i32``,
    ``SymInt``, ``constexpr``; None if it is unknown."""


@dataclass(frozen=True)
class InputSize:
    """A symbol of generated C++ code that is a size of one of its inputs."""

    symbol: str
    input: str
    dimension: int


@dataclass(frozen=True)
class Assignment:
    """The values of a graph's symbols in a call, as columns, in the order in which the call computed them."""

    symbol: list[int]
    """The index into `Graph.symbols`."""
    launches: list[int]
    """The number of launches of the call that had begun when the symbol got the value."""
    value: list[Any]
    """An integer, a float or a boolean; ``"inf"``, ``"-inf"`` or ``"nan"`` for a float that JSON cannot represent;
    None if the value is not a number, or has more than 64 bits."""


@dataclass(frozen=True)
class CallSymbols(Record):
    """The values of the symbols of calls, as columns. Calls with the same values share an assignment."""

    KIND: ClassVar[str] = "call_symbols"

    call: list[int]
    assigned: list[int]
    """The index into `assignments`."""
    assignments: list[Assignment]
