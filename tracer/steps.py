"""Where one step ends and the next begins.

Three sources, the best one seen so far wins: `stepscope.step()`; else an optimizer's `step` (the first optimizer
that steps: with several, a step is one round of it); else the next outermost call of a frame that has already
run in the step. Evaluation between two training steps is split by its calls. A step whose optimizer was skipped
(a gradient scaler does so after an overflow) ends where a frame runs more often than in the step before.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Literal, NamedTuple

Source = Literal["user", "optimizer", "call"]


class EndedStep(NamedTuple):
    step: int
    kind: Literal["train", "inference"]
    by: Source
    start_ns: int
    end_ns: int


class StepTracker:
    """Numbers steps from 0 and hands on each one that has ended. Safe to call from any thread."""

    def __init__(self, on_end: Callable[[EndedStep], None], now: Callable[[], int]) -> None:
        self._on_end, self._now = on_end, now
        self._lock = threading.RLock()  # a signal handler may end a step or run a graph
        self._source: Source = "call"
        self._next = 0
        self._open: int | None = None
        self._opened_under: Source = "call"
        self._frames: Counter[object] = Counter()
        self._usual: Counter[object] | None = None
        """Calls of each frame in the last step that an optimizer began and ended."""
        self._trains = False
        self._started_ns = self._ended_ns = now()
        self._optimizer: int | None = None

    def on_call(self, frame: object, phase: str | None) -> int:
        """An outermost graph call of `frame` begins; the step it belongs to."""
        with self._lock:
            if self._open is not None and self._starts_new_step(frame, phase):
                self._close("call")
            if self._open is None:
                self._begin()
            self._trains |= phase in ("forward", "backward")
            if phase != "backward":
                self._frames[frame] += 1
            assert self._open is not None
            return self._open

    def on_optimizer(self, optimizer: int) -> None:
        """An optimizer, known by its `id`, has finished its `step`."""
        with self._lock:
            self._trains = True
            if self._source == "user":
                return
            self._source = "optimizer"
            if self._optimizer is None:
                self._optimizer = optimizer
            if optimizer != self._optimizer and self._is_another_program():
                self._optimizer = optimizer
            if optimizer == self._optimizer:
                if self._open is None:  # no call was seen, as in replays of a CUDA graph
                    self._begin(self._ended_ns)
                    self._trains = True
                self._close("optimizer")

    def on_user(self) -> None:
        """`stepscope.step()` was called."""
        with self._lock:
            self._source = "user"
            self._close("user")

    @property
    def last(self) -> int:
        """The step that began last; -1: none has."""
        return self._next - 1

    def finish(self) -> None:
        """Recording ends: so does the open step."""
        with self._lock:
            self._close(self._source)

    def _starts_new_step(self, frame: object, phase: str | None) -> bool:
        if self._source == "user" or phase == "backward":
            return False
        if self._source == "optimizer" and self._trains:
            return self._usual is not None and 0 < self._usual[frame] <= self._frames[frame]
        if self._source == "optimizer" and phase == "forward":
            return True
        return frame in self._frames

    def _is_another_program(self) -> bool:
        """Nothing that ran in this step is part of a usual one: training has gone on to another model."""
        return bool(self._usual and self._frames and self._usual.keys().isdisjoint(self._frames))

    def _begin(self, since_ns: int | None = None) -> None:
        self._open, self._next = self._next, self._next + 1
        self._opened_under = self._source
        self._frames, self._trains = Counter(), False
        self._started_ns = since_ns or self._now()

    def _close(self, by: Source) -> None:
        if self._open is not None:
            step, self._open = self._open, None
            if by == self._opened_under == "optimizer":
                self._usual = self._frames
            self._ended_ns = self._now()
            kind: Literal["train", "inference"] = "train" if self._trains else "inference"
            self._on_end(EndedStep(step, kind, by, self._started_ns, self._ended_ns))
