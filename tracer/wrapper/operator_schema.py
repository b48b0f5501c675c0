"""The part of an operator's schema that the parser of wrappers needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class OperatorSchema(NamedTuple):
    """The parameters of an operator, and whether its results are views."""

    parameters: tuple[tuple[str, bool], ...]
    """Name of each parameter in order, and whether the operator writes to it."""
    view_of: str | None = None
    """Parameter whose memory all results share, or None if the results have their own memory."""
    scalars: tuple[str | None, ...] = ()
    """Type of each parameter that is not a tensor (``SymInt``, ``float``), and None for the others."""


SchemaLookup = Callable[[str], "OperatorSchema | None"]
"""Function that returns the schema of an operator given its dotted name, or None if the operator is unknown."""
