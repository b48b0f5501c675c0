"""Records events that may end a step, and guesses the current step.

The reader of the log decides which step a call belongs to, since it knows the later events: how many optimizers an
iteration has, and what ran before the first of them stepped. It uses the marks: `stepscope.step()`, an optimizer's
`step`, begin and end of a call of `generate`. The number that a running call gets is a guess, for decisions at run
time (``--steps``, in which steps storages are followed, names of files).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

Source = Literal["user", "optimizer", "call"]


class PossibleStepEnd(NamedTuple):
    what: Literal["user", "optimizer", "begin", "end"]
    who: int
    name: str | None
    thread: int
    ns: int


class StepTracker:
    """Passes on each mark, and guesses steps, numbered from 0; thread-safe.

    The optimizer that steps first ends each step, also if there are several. The calls before it are one step, except
    those that did not train a function that is trained later. Later calls of a function that no training step has
    called, as in an evaluation, are separate steps.
    """

    def __init__(self, on_mark: Callable[[PossibleStepEnd], None], now: Callable[[], int]) -> None:
        self._on_mark, self._now = on_mark, now
        self._lock = threading.RLock()  # a signal handler may end a step or run a graph
        self._source: Source = "call"
        self._next = 0
        self._open: int | None = None
        self._frames: Counter[object] = Counter()
        self._opened_under: Source = "call"
        self._usual: Counter[object] = Counter()
        """Number of calls of each frame in the last step between two steps of the optimizer."""
        self._helpers: set[object] = set()
        """Frames that a training step has called without training them."""
        self._called: set[object] = set()
        """Frames that the open step has called without training them."""
        self._trained: set[object] = set()
        """Frames that were called for training."""
        self._before: list[set[object]] = []
        """Frames of each step before the first one that trained, until an optimizer steps."""
        self._trains = self._has_trained = False
        self._evaluates = False
        self._within = 0
        self._optimizers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._new_numbers = count()
        self._first: int | None = None
        """Number of the optimizer that ends the steps; None before the first one steps."""

    def on_call(self, frame: object, phase: str | None) -> int:
        """Handle the begin of an outermost graph call of `frame`; return its guessed step."""
        with self._lock:
            if self._open is not None and self._starts_new_step(frame, phase):
                self._close()
            if self._open is None:
                self._open, self._next = self._next, self._next + 1
                self._opened_under = self._source
            if phase in ("forward", "backward"):
                self._trains = True
                self._trained.add(frame)
            else:
                self._called.add(frame)
            if phase != "backward":
                self._frames[frame] += 1
            return self._open

    def on_optimizer(self, optimizer: Any) -> None:
        """Handle the end of an optimizer's `step`."""
        with self._lock:
            number = self._optimizers.get(optimizer)
            if number is None:
                number = self._optimizers[optimizer] = next(self._new_numbers)
            self._mark("optimizer", number, type(optimizer).__name__)
            if self._source == "user":
                return
            if self._source == "call":
                self._source = "optimizer"
                self._join_first_steps()
            if self._first is None or (number != self._first and self._is_another_program()):
                self._first = number
            if number == self._first:
                self._next += self._open is None  # no call was seen, as in replays of a CUDA graph
                if self._opened_under == "optimizer":
                    self._usual = self._frames
                self._helpers |= self._called
                self._evaluates = False
                self._close()

    def on_user(self) -> None:
        with self._lock:
            self._mark("user")
            self._source = "user"
            self._close()

    def on_whole_call(self, begins: bool) -> None:
        """Handle the begin or end of a function of which each call is a step."""
        with self._lock:
            self._mark("begin" if begins else "end")
            self._within += 1 if begins else -1
            if self._source == "call":
                self._close()

    @property
    def last(self) -> int:
        """Number of the last step that began; -1 if none has."""
        return self._next - 1

    def _mark(self, what: Literal["user", "optimizer", "begin", "end"], who: int = 0, name: str | None = None) -> None:
        self._on_mark(PossibleStepEnd(what, who, name, threading.get_native_id(), self._now()))

    def _join_first_steps(self) -> None:
        if self._open is not None:
            kept = 0
            while kept < len(self._before) and self._before[kept] <= self._trained:
                kept += 1
            self._open, self._next = kept, kept + 1

    def _starts_new_step(self, frame: object, phase: str | None) -> bool:
        if self._source == "user" or phase == "backward" or self._within > 0:
            return False
        if self._source == "call":
            return frame in self._frames
        if self._trains:
            return 0 < self._usual[frame] <= self._frames[frame]
        if phase == "forward":
            return self._evaluates
        is_again = frame in self._frames and frame not in self._helpers
        self._evaluates |= is_again
        return is_again

    def _is_another_program(self) -> bool:
        """Return whether the open step has no frame of the last one, so that another model is being trained."""
        return bool(self._usual and self._frames) and self._usual.keys().isdisjoint(self._frames)

    def _close(self) -> None:
        self._has_trained |= self._trains
        if self._source == "call" and self._open is not None and not self._has_trained:
            self._before.append(set(self._frames))
        self._open = None
        self._frames, self._called, self._trains = Counter(), set(), False
