"""What may end a step, and a guess of the step that runs.

Which step a call belongs to is decided by the reader of the log, who knows what came later: how many optimizers an
iteration has, and what ran before the first of them stepped. It needs the marks: `stepscope.step()`, an optimizer's
`step`, begin and end of a whole call of `generate`. The number that is given to a call while it runs is a guess, for
what has to be decided then (``--steps``, how often storages are followed, names of files).
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
    """Hands on each mark, and guesses steps, numbered from 0. Safe to call from any thread.

    The first optimizer that steps ends a step: with several, a step is one round of it. What ran before is one step,
    except for calls that did not train a function that is trained. Later calls of a function that no training step has
    called, as in an evaluation, are steps of their own.
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
        """Calls of each frame in the last step that an optimizer has begun and ended."""
        self._helpers: set[object] = set()
        """Frames that some training step has called without training them."""
        self._called: set[object] = set()
        """Those of the open step."""
        self._trained: set[object] = set()
        """Frames that were called to be trained."""
        self._before: list[set[object]] = []
        """Before an optimizer has stepped: frames of the steps that trained nothing, up to the first one that did."""
        self._trains = self._has_trained = False
        self._evaluates = False
        self._within = 0
        self._optimizers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._new_numbers = count()
        self._first: int | None = None
        """The optimizer that ends the steps."""

    def on_call(self, frame: object, phase: str | None) -> int:
        """An outermost graph call of `frame` begins; the step that it seems to belong to."""
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
        """An optimizer has finished its `step`."""
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
        """`stepscope.step()` was called."""
        with self._lock:
            self._mark("user")
            self._source = "user"
            self._close()

    def on_whole_call(self, begins: bool) -> None:
        """A function whose whole call is a step begins or ends."""
        with self._lock:
            self._mark("begin" if begins else "end")
            self._within += 1 if begins else -1
            if self._source == "call":
                self._close()

    @property
    def last(self) -> int:
        """The step that began last; -1: none has."""
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
        """Nothing that ran in this step is part of a usual one: training has gone on to another model."""
        return bool(self._usual and self._frames) and self._usual.keys().isdisjoint(self._frames)

    def _close(self) -> None:
        self._has_trained |= self._trains
        if self._source == "call" and self._open is not None and not self._has_trained:
            self._before.append(set(self._frames))
        self._open = None
        self._frames, self._called, self._trains = Counter(), set(), False
