"""Records of what failed or could not be recorded. `stepscope.tracer.schema.records` names them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Skipped:
    """Something that could not be recorded, and why."""

    KIND: ClassVar[str] = "skipped"

    what: str
    why: str
    graph: int | None = None


@dataclass(frozen=True)
class Failure:
    """A hook of the recorder failed for the first time; the program went on. `Overhead` counts every failure."""

    KIND: ClassVar[str] = "failure"

    where: str
    error: str
    count: int


@dataclass(frozen=True)
class CompileError:
    """A compile failed to which PyTorch gives no id: its own records tell of failures only where there is one."""

    KIND: ClassVar[str] = "compile_error"

    type: str
    """``LoweringException``: the name of the exception, as PyTorch has it in its metrics of compiles."""
    text: str
