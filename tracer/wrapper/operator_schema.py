"""What the parser of wrappers needs to know of an operator's schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class OperatorSchema(NamedTuple):
    """The parameters of an operator, and whether its results are views."""

    parameters: tuple[tuple[str, bool], ...]
    """The name of each parameter in order, and whether the operator writes to it."""
    view_of: str | None = None
    """The parameter whose memory all results share, or None if the results have memory of their own."""
    scalars: tuple[str | None, ...] = ()
    """The type of each parameter that takes no tensor (``SymInt``, ``float``), and None for the others."""


SchemaLookup = Callable[[str], "OperatorSchema | None"]
"""Maps the dotted name of an operator to its schema, or to None if the operator is not known."""
