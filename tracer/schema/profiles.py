"""Records of what PyTorch's profiler saw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepscope.tracer.schema.record import Record


@dataclass(frozen=True)
class ProfiledOperator(Record):
    """An operator that PyTorch's profiler saw in a step of `stepscope run --profile`, on the clock of the launches."""

    KIND: ClassVar[str] = "profiled_operator"
    TABLE: ClassVar[str | None] = "profiled_operators"

    thread: int
    start_ns: int
    duration_ns: int
    name: str
    """Name with its namespace, such as ``aten::addmm``."""
    depth: int
    """Number of operators that called it; at most 3."""
