"""Rows of verdicts of the judge; ids are those of the index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from stepscope.viewer.graphs.rows import SourceLine

Verdict = Literal["ok", "wrong", "unjudged"]
VERDICT_SIGNS: Mapping[Verdict, tuple[str, str]] = {
    "wrong": ("✖", "wrong"),
    "unjudged": ("–", "not judged"),
    "ok": ("●", "ok"),
}
"""The sign and the name of each verdict, the worst first, also for scripts."""
VERDICTS: tuple[Verdict, ...] = tuple(VERDICT_SIGNS)
VERDICT_HOW: Mapping[str, str] = {
    "equal": "bit-equal to eager code",
    "near": "so near to eager code that float64 cannot change the verdict",
    "float64": "compared with float64",
    "moved": "compared with float64, and with float64 of inputs moved by half a unit in the last place",
    "in_order": "compared with float64, with float64 of moved inputs, and with sums that plain loops compute",
}
"""The comparisons that decide, as pages name them, also for scripts."""


@dataclass(frozen=True)
class JudgedBufferRow:
    """A buffer with a wrong value, or one at which eager code is off."""

    log: int
    time_unix_ns: int
    step: int
    buffer: str
    node: str
    verdict: str
    rules: list[str]
    how: str
    dtype: str
    size: list[int]
    index: list[int]
    compiled: float | None
    eager: float | None
    float64: float | None
    allowed: float | None
    of_limit: float | None
    """The largest error as a multiple of what is allowed; None for a value that must be equal or finite."""
    bad: int
    fragment: list[str]
    inputs: list[str]
    source: SourceLine | None
    files: list[str]
    suspects: list[int]
    """Positions, in the call, of the launches of which one is wrong if this one is not."""
    graph: int
    call: int
    site: int
    kernel: str
    kind: str
    line: int
    launch: int | None
    position: int


@dataclass(frozen=True)
class ClobberedInputRow:
    """An input that is not what its producer wrote; `producer` and `writer` are positions in the call."""

    log: int
    time_unix_ns: int
    step: int
    buffer: str
    is_written: bool
    producer: int | None
    writer: int | None
    is_result: bool
    graph: int
    call: int
    site: int
    kernel: str
    kind: str
    launch: int | None
    position: int

    @property
    def is_unwritten_result(self) -> bool:
        """Whether the call returned the buffer although nothing was written to it, which no launch is guilty of."""
        return self.is_result and not self.is_written


@dataclass(frozen=True)
class JudgedCount:
    """How many launches were judged; `reasons` are those of the others."""

    steps: int
    launches: int
    judged: int
    reasons: dict[str, int]
    duration_ns: int


@dataclass(frozen=True)
class BufferVerdict:
    """The verdict on one buffer that a launch wrote."""

    buffer: str
    node: str | None
    """The FX node whose value the buffer holds; None if it is unknown."""
    verdict: Verdict
    how: str | None
    """The comparison that decided: ``equal``, ``near``, ``float64``, ``moved`` or ``in_order``; None if the
    buffer was not judged."""
    of_limit: float | None
    reason: str | None
    """The reason why the buffer was not judged."""
    details: JudgedBufferRow | None = None
    """The worst element and what was recomputed, for a wrong buffer and for one at which eager code is off."""


@dataclass(frozen=True)
class JudgedLaunch:
    """The verdicts on one launch."""

    launch: int | None
    """None if the launch is not in the log."""
    log: int
    step: int
    graph: int
    site: int
    kernel: str
    kind: str
    buffers: list[BufferVerdict] = field(default_factory=list)
    clobbered: list[ClobberedInputRow] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        """Return the worst verdict on its buffers; a launch counts as judged if one of them was judged."""
        found = {one.verdict for one in self.buffers}
        return "wrong" if "wrong" in found or self.clobbered else "ok" if "ok" in found else "unjudged"

    @property
    def of_limit(self) -> float | None:
        """Return the largest error as a multiple of what is allowed; None if no buffer has one."""
        return max((one.of_limit for one in self.buffers if one.of_limit is not None), default=None)


@dataclass(frozen=True)
class JudgedStep:
    """How many launches of a step were judged."""

    log: int
    step: int
    launches: int
    judged: int
    wrong: int
    """The number of launches with a wrong buffer or a clobbered input."""
    suspect: int
    """The number of other launches whose values are wrong, either by themselves or by a launch that wrote an input."""
    duration_ns: int
    """The time that judging took."""
