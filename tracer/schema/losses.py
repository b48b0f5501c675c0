"""Records of losses that are computed outside of compiled code; `stepscope.tracer.schema.records` names them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepscope.tracer.schema.record import Record


@dataclass(frozen=True)
class LossPath(Record):
    """How a tensor whose gradients a backward pass computes was computed from a result of compiled code.

    The paths of the first backward passes are recorded, each once; of several paths from the same result, one of the
    shortest."""

    KIND: ClassVar[str] = "loss_path"
    TABLE: ClassVar[str | None] = "loss_paths"

    thread: int
    """The native id of the thread that calls `backward` or `torch.autograd.grad`."""
    start_ns: int
    size: list[int]
    """The size of the result of compiled code."""
    uses: int
    """The number of nodes of autograd that use the result."""
    nodes: list[str]
    """The names of the nodes of autograd from the result to the tensor, such as ``LogSoftmaxBackward0``."""
    sizes: list[list[int]]
    """For each node, the size of what it computed in the forward pass."""
    operands: list[int]
    """For each node, the number of its inputs that require gradients."""
    file: str | None
    """The place in the program of that call."""
    line: int | None
    lines: list[str]
    """The text of the lines of its function up to that line, at most 17."""


@dataclass(frozen=True)
class SummedLosses(Record):
    """A backward pass began at the sum of losses each of which could have had a backward pass of its own: they were
    computed from results of compiled code, and nothing but leaves, such as parameters, belongs to two of them. The
    first backward passes are looked at, and each place is recorded once."""

    KIND: ClassVar[str] = "summed_losses"
    TABLE: ClassVar[str | None] = "summed_losses"

    thread: int
    """The native id of the thread that calls `backward` or `torch.autograd.grad`."""
    start_ns: int
    losses: int
    """The number of losses; at least 4."""
    file: str | None
    """The place in the program of that call."""
    line: int | None
