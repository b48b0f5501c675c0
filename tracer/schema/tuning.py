"""Records of what Inductor's autotuner measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepscope.tracer.schema.record import Record


@dataclass(frozen=True)
class TunedInput:
    """An input with which the autotuner measured."""

    name: str
    """The buffer in the generated code."""
    dtype: str
    size: list[int]
    """Of a symbolic size the value that the autotuner took for it."""
    stride: list[int]


@dataclass(frozen=True)
class MeasuredChoice:
    """One way to compute the node: an operator of a library, or a template with its parameters."""

    name: str
    """The autotuner's name, such as ``mm`` or ``triton_mm_7``."""
    description: str
    """The parameters of a template; empty if it has none."""
    duration_ns: int | None
    """What the autotuner measured; None if the choice failed."""


@dataclass(frozen=True)
class Autotuned(Record):
    """The choices for one scheduler node, such as a matrix product, that Inductor's autotuner measured."""

    KIND: ClassVar[str] = "autotuned"
    TABLE: ClassVar[str | None] = "autotuned"

    graph: int
    snode: str
    """The scheduler node, as `LaunchSite.snodes` names it."""
    operation: str
    """The autotuner's name of the operation, such as ``mm``, ``addmm`` or ``convolution``."""
    inputs: list[TunedInput]
    dynamic: bool
    """Whether a size is symbolic, so that calls may have other sizes than the autotuner."""
    measured: bool | None
    """Whether this process measured the durations; False if they come from a cache; None if that is not known."""
    choices: list[MeasuredChoice]
    """The fastest ones first, at most 100 and the chosen one."""
    chosen: int
    """The index into `choices` of the one that the generated code uses."""
