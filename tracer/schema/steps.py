"""Records of steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal


@dataclass(frozen=True)
class Steps:
    """A batch of steps that have ended, as columns. A step that has not is known by its calls. Since format version 2
    only a log that was made from printed text holds them."""

    KIND: ClassVar[str] = "steps"

    step: list[int]
    kind: list[Literal["train", "inference"]]
    by: list[Literal["user", "optimizer", "call"]]
    """What ended it: `stepscope.step()`, an optimizer, or a call of a frame that had run in the step already."""
    start_ns: list[int]
    end_ns: list[int]
    """-2: it has ended, and when is not known."""


@dataclass(frozen=True)
class StepMarks:
    """What may end a step, as columns. Which of it does is known later, where the whole log is: an iteration may have
    several optimizers, and the first calls come before any of them has stepped."""

    KIND: ClassVar[str] = "step_marks"

    what: list[Literal["user", "optimizer", "begin", "end"]]
    """`stepscope.step()` was called; an optimizer has stepped; a function whose whole call is a step (`generate` of
    transformers) begins, and ends."""
    who: list[int]
    """Optimizers are numbered in the order in which they first step; 0 for all others."""
    name: list[str | None]
    """The class of the optimizer; None for all others."""
    thread: list[int]
    ns: list[int]
