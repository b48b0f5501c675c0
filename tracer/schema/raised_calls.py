"""Records of exceptions that left compiled code; `stepscope.tracer.schema.records` names them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepscope.tracer.schema.process_ends import Frame
from stepscope.tracer.schema.record import Record


@dataclass(frozen=True)
class RaisedCall(Record):
    """An exception left a call of generated code, whether the program catches it or not."""

    KIND: ClassVar[str] = "raised_call"
    TABLE: ClassVar[str | None] = "raised_calls"

    graph: int
    call: int
    step: int
    site: int | None
    """The site of the last launch that had begun; None if no launch had."""
    returned: bool
    """Whether that launch had returned, so that a later statement of the wrapper raised."""
    line: int | None
    """The line of the wrapper that raised."""
    statement: str | None
    """The text of that line, such as ``assert_size_stride(arg0_1, (4, 5), (5, 1))``."""
    type: str
    """The name of the exception's class, with its module unless that is `builtins`."""
    text: str
    """The text of the exception, at most 4,000 characters. A line that begins with ``the call raised: `` says why a
    call of generated C++ code failed, if that is known."""
    frames: list[Frame]
    """The frames of the program that led to the call, outermost first, without those of PyTorch; at most 16."""


@dataclass(frozen=True)
class FailedNode(Record):
    """The FX node that Inductor was working on when a compile failed."""

    KIND: ClassVar[str] = "failed_node"
    TABLE: ClassVar[str | None] = "failed_nodes"

    compile_id: str | None
    type: str
    text: str
    """The first line of the exception's text."""
    node: str
    target: str
    """The operator, such as ``aten.mm.default``."""
    frame: Frame | None
    """The line of the model that the node computes; None if it is unknown."""
