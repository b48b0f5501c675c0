"""The parts of steps: the outermost calls of a thread, and the marks between them that end an iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

By = Literal["user", "optimizer", "call", "generate"]
Key = tuple[object, bool]
"""The function that was called, and whether it was called to be trained."""


@dataclass(slots=True)
class OuterCall:
    """A call of a compiled function with the backward calls that follow it; or a whole call of `generate`."""

    key: Key
    start_ns: int
    end_ns: int
    calls: list[int] = field(default_factory=list)
    """Positions of the calls in the log."""
    trains: bool = False
    generates: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that may end a step: an optimizer has stepped, or a backward pass has ended where none is seen."""

    who: object
    ns: int
    name: str | None = None
    """Class of the optimizer; None: it is not one, or not known."""


@dataclass(slots=True)
class FoundStep:
    """A step that was found."""

    outers: list[OuterCall]
    by: By
    end_ns: int | None = None
    """When it was seen to end; None: where the next one begins."""
    start_ns: int | None = None
    """None: with its first call; without one, nobody knows."""
    who: str | None = None
    """Class names of the optimizers that ended it."""
    trains: bool = False
    compiles_from_ns: int | None = None
    """When the compile began that its first call has triggered; None: it has triggered none."""

    @property
    def kind(self) -> Literal["train", "inference"]:
        return "train" if self.trains or any(outer.trains for outer in self.outers) else "inference"

    @property
    def first_ns(self) -> int:
        begins = [outer.start_ns for outer in self.outers]
        if begins and self.compiles_from_ns is not None:
            begins.append(self.compiles_from_ns)
        if begins or self.start_ns is None:
            return min(begins, default=self.end_ns or 0)
        return self.start_ns

    @property
    def last_ns(self) -> int:
        """The last that is known of it."""
        return max([self.end_ns or 0, self.first_ns, *(outer.end_ns for outer in self.outers)])


def runs_of(outers: Sequence[OuterCall]) -> list[tuple[Key, int]]:
    """Keys with neighbours that are alike joined, and how many of each there are."""
    found: list[tuple[Key, int]] = []
    for outer in outers:
        if found and found[-1][0] == outer.key:
            found[-1] = outer.key, found[-1][1] + 1
        else:
            found.append((outer.key, 1))
    return found
