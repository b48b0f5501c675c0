"""Records of what failed or could not be recorded. `stepscope.tracer.schema.records` names them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepscope.tracer.schema.record import Record


@dataclass(frozen=True)
class Skipped(Record):
    """Something that could not be recorded, and why."""

    KIND: ClassVar[str] = "skipped"

    what: str
    why: str
    graph: int | None = None


@dataclass(frozen=True)
class Failure(Record):
    """A hook of the recorder failed for the first time, and the program went on. `Overhead` counts every failure."""

    KIND: ClassVar[str] = "failure"

    where: str
    error: str
    count: int


@dataclass(frozen=True)
class CompileError(Record):
    """A compile without an id failed. PyTorch's own records report only failures of compiles that have an id."""

    KIND: ClassVar[str] = "compile_error"

    type: str
    """The name of the exception as in PyTorch's compile metrics, such as ``LoweringException``."""
    text: str
