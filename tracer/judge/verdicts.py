"""The verdicts of one call, as they are collected and written to the log."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from stepscope.tracer.judge.integrity import Change
from stepscope.tracer.judge.rule import Comparison
from stepscope.tracer.schema.process_ends import Frame


@dataclass(frozen=True)
class Verdict:
    """The verdict on one buffer that a launch wrote."""

    launch: int
    """Position of the launch in the call."""
    site: int
    variable: str
    buffer: str
    node: str | None
    found: Comparison | None
    """The comparison; None if the buffer could not be judged."""
    why_not: str | None = None
    suspects: tuple[int, ...] = ()
    """Launches one of which is wrong if this one is not; then the buffer counts as not judged."""

    @property
    def word(self) -> str:
        if self.found is None or self.suspects:
            return "unjudged"
        return "wrong" if self.found.broken else "ok"


@dataclass(frozen=True)
class Detail:
    """What a finding shows of a wrong buffer, or of one at which eager code is off."""

    verdict: Verdict
    fragment: list[str]
    inputs: list[str]
    """Nodes and the buffers from which their values were taken: ``arg0_1 in arg0_1``."""
    source: Frame | None
    dtype: str
    size: list[int]
    files: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Unwritten:
    """A launch read a buffer to which nothing was written, or the call returned it after its last launch."""

    launch: int
    site: int
    variable: str
    is_result: bool = False


@dataclass
class CallVerdicts:
    verdicts: list[Verdict] = field(default_factory=list)
    details: list[Detail] = field(default_factory=list)
    changes: list[tuple[int, int, Change]] = field(default_factory=list)
    """Launch, site and what has changed."""
    unwritten: list[Unwritten] = field(default_factory=list)
    launches: int = 0
    not_judged: Counter[str] = field(default_factory=Counter)
    """Launches that were not judged, by the reason."""
    judged: int = 0
    """Number of launches that were judged, in part or whole."""

    @property
    def accuses(self) -> bool:
        """Whether a launch is wrong or suspect, or has read what it should not."""
        is_wrong = any(one.word == "wrong" or one.suspects for one in self.verdicts)
        return is_wrong or bool(self.changes or self.unwritten)
