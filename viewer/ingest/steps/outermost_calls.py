"""The parts of steps: the outermost calls of a thread, and the marks that end an iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

By = Literal["user", "optimizer", "backward", "call", "generate"]
Key = tuple[object, bool]
"""The function of a call, and whether the call is for training."""


@dataclass(slots=True)
class OuterCall:
    """A call of a compiled function with the backward calls that follow it, or a complete call of `generate`."""

    key: Key
    start_ns: int
    end_ns: int
    calls: list[int] = field(default_factory=list)
    """Positions in the log of the calls that it contains."""
    trains: bool = False
    generates: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """An event that may end a step: a step of an optimizer, or the end of a backward pass if there is no optimizer."""

    who: object
    ns: int
    name: str | None = None
    """Class name of the optimizer; None if it is unknown or the mark is a backward pass."""


@dataclass(slots=True)
class FoundStep:
    """A step of the program."""

    outers: list[OuterCall]
    by: By
    end_ns: int | None = None
    """Recorded end; None if the step ends where the next one begins."""
    start_ns: int | None = None
    """Recorded begin; None if it begins with its first call."""
    who: str | None = None
    """Class names of the optimizers that ended it."""
    trains: bool = False
    compiles_from_ns: int | None = None
    """Begin of the compile that its first call triggered; None if there was none."""

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
        """Last recorded time of the step."""
        return max([self.end_ns or 0, self.first_ns, *(outer.end_ns for outer in self.outers)])


def runs_of(outers: Sequence[OuterCall]) -> list[tuple[Key, int]]:
    """Return the keys of the calls without repetitions, each with the number of its calls in a row."""
    found: list[tuple[Key, int]] = []
    for outer in outers:
        if found and found[-1][0] == outer.key:
            found[-1] = outer.key, found[-1][1] + 1
        else:
            found.append((outer.key, 1))
    return found
