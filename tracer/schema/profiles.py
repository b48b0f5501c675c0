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


@dataclass(frozen=True)
class DeviceWork(Record):
    """Kernels, copies and fills of devices that PyTorch's profiler saw in the steps of `stepscope run --profile`, as
    columns. All times are on the clock of the launches."""

    KIND: ClassVar[str] = "device_work"

    began_ns: int
    """When the profiler began to run."""
    ended_ns: int
    """When it stopped."""
    names: list[str]
    """The names of kernels, copies (``Memcpy HtoD (Pinned -> Device)``) and fills (``Memset (Device)``)."""
    name: list[int]
    """The index into `names`."""
    device: list[int]
    stream: list[int]
    """The number that CUDA gives the stream."""
    start_ns: list[int]
    duration_ns: list[int]
    thread: list[int | None]
    """The thread that enqueued the work; None if that was before the profiler ran."""
    enqueued_ns: list[int | None]
    """When the thread enqueued it."""
    call: list[int | None]
    """The replayed call of a CUDA graph that it belongs to; None for other work."""
    launch: list[int]
    """The position of the launch in this call, counted from 0; -1 if no launch or an unknown one captured the work."""
