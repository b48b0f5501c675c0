"""Notes which schedulers of learning rates step, and the lines that call them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from torch.optim import lr_scheduler

from stepscope.tracer.inductor.compat import left_to_python
from stepscope.tracer.inductor.wrapped_functions import WrappedFunctions
from stepscope.tracer.runtime.program_frames import calling_place


class SchedulerCall(NamedTuple):
    """A scheduler that has stepped."""

    name: str
    """Its class."""
    file: str | None
    """The place in the program that calls `step`."""
    line: int | None


class SchedulerCalls:
    """Wraps `step` of the schedulers of PyTorch while it is attached, and remembers the last one of each optimizer."""

    def __init__(self, failed: Callable[[str, BaseException], None]) -> None:
        self._failed = failed
        self._wrapped = WrappedFunctions()
        self._places: WeakKeyDictionary[Any, SchedulerCall] = WeakKeyDictionary()
        """The first call of each scheduler by the program."""
        self._last: WeakKeyDictionary[Any, SchedulerCall] = WeakKeyDictionary()

    def attach(self) -> None:
        for owner in vars(lr_scheduler).values() if not self._wrapped else ():
            if isinstance(owner, type) and "step" in vars(owner):
                self._wrapped.wrap(owner, "step", self._noting)

    def detach(self) -> None:
        self._wrapped.restore()

    def last(self, optimizer: Any) -> SchedulerCall | None:
        """Return the scheduler of an optimizer that has stepped last, or None."""
        return self._last.get(optimizer)

    def _noting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        calls = self

        @functools.wraps(original)
        def step(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            if calls._wrapped:
                calls._note(self, sys._getframe(1).f_code.co_name)
            return result

        return left_to_python(step, original)  # type: ignore[no-any-return]

    def _note(self, scheduler: Any, caller: str) -> None:
        if caller == "_initial_step":  # of its constructor
            return
        try:
            call = self._places.get(scheduler)
            if call is None:
                call = self._places[scheduler] = SchedulerCall(type(scheduler).__name__, *calling_place())
            self._last[scheduler.optimizer] = call
        except Exception as error:
            self._wrapped.restore()
            self._failed("schedulers", error)
