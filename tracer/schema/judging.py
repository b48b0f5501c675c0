"""Records of judged launches, whose outputs were recomputed from the inputs that they really read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from stepscope.tracer.schema.process_ends import Frame
from stepscope.tracer.schema.record import Record


@dataclass(frozen=True)
class JudgedCall(Record):
    """The verdicts on one call, as columns with one row per buffer that a launch wrote."""

    KIND: ClassVar[str] = "judged_call"
    TABLE: ClassVar[str | None] = "judged_calls"

    graph: int
    call: int
    step: int
    launches: int
    """The number of launches of the call."""
    judged: int
    """The number of launches of which at least one buffer was judged."""
    not_judged: dict[str, int]
    """The number of launches that were not judged, by the reason."""
    launch: list[int]
    """The position of the launch within the call, counted from 0."""
    site: list[int]
    buffer: list[str]
    """The name of the buffer in the wrapper."""
    node: list[str | None]
    """The FX node whose value the buffer holds; None if it is unknown."""
    verdict: list[str]
    """``ok``, ``wrong``, or ``unjudged``."""
    how: list[str | None]
    """``equal``: bit-equal to eager code; ``near``: so near that float64 cannot change the verdict; ``float64``;
    ``moved``: float64 with moved inputs was needed as well; ``in_order``: and sums of plain loops; None if the buffer
    was not judged."""
    of_limit: list[float | None]
    """The largest error as a multiple of what is allowed; None for a value that must be equal or finite."""
    reason: list[int | None]
    """The index into `reasons` of the reason why the buffer was not judged."""
    reasons: list[str]
    duration_ns: int
    """The time that judging took."""


@dataclass(frozen=True)
class JudgedBuffer(Record):
    """What is known of a buffer with a wrong value, or of one in which eager code is off and compiled code is not."""

    KIND: ClassVar[str] = "judged_buffer"
    TABLE: ClassVar[str | None] = "judged_buffers"

    graph: int
    call: int
    step: int
    launch: int
    site: int
    buffer: str
    node: str
    verdict: str
    """``wrong``; ``suspect``: this launch or one of `suspects` is wrong; ``eager_off``."""
    rules: list[str]
    """The parts of the rule that do not hold: ``element``, ``mean``, ``bias``, ``integer``, ``nonfinite``."""
    how: str
    dtype: str
    size: list[int]
    index: list[int]
    """The position of the worst element."""
    compiled: float | None
    eager: float | None
    float64: float | None
    allowed: float | None
    """The allowed error of the worst element."""
    of_limit: float | None
    """None for a value that must be equal or finite."""
    bad: int
    """The number of elements that break the rule."""
    fragment: list[str]
    """The FX nodes that were recomputed, one line for each."""
    inputs: list[str]
    """The values that the launch read, with the buffers that held them: ``primals_1 in primals_1``."""
    source: Frame | None
    """The line of the model that the node comes from."""
    files: list[str] = field(default_factory=list)
    """The saved inputs, relative to the folder of the log."""
    suspects: list[int] = field(default_factory=list)
    """The positions, in the call, of launches that wrote inputs which could not be judged."""


@dataclass(frozen=True)
class ClobberedInput(Record):
    """A launch read, or a call returned, a buffer that has changed since it was written, or that nothing wrote."""

    KIND: ClassVar[str] = "clobbered_input"
    TABLE: ClassVar[str | None] = "clobbered_inputs"

    graph: int
    call: int
    step: int
    launch: int
    site: int
    buffer: str
    is_written: bool
    """Whether anything was written to the buffer before."""
    producer: int | None
    """The position of the launch that wrote the buffer; None for an input, or if nothing was written."""
    writer: int | None
    """The position of the last launch in between that wrote to the same memory; None if no launch did. It is
    `launch`, and so is `producer`, if the launch was given this memory for another buffer that it wrote."""
    is_result: bool = False
    """Whether no launch reads the buffer, but the call returns it; `launch` is then the one that overwrote it, or the
    last one of the call if nothing was written to the buffer."""
