"""Notes calls of `clip_grad_norm_` that do not limit the gradients with which an optimizer steps.

A call after the step changes gradients that `zero_grad` clears before the next one. A call before `GradScaler` divides
the gradients by its scale limits the norm of their multiples. The gradient of one parameter is looked at; nothing is
read from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from torch.optim import Optimizer

from stepscope.tracer.inductor.cleared_gradients import MOST_OPTIMIZERS
from stepscope.tracer.inductor.compat import without_modes
from stepscope.tracer.inductor.eager_runs import is_recording_a_device_graph
from stepscope.tracer.inductor.gradient_places import first_gradient, gradient_state, parameter_at
from stepscope.tracer.runtime.program_frames import calling_place
from stepscope.tracer.schema.steps import MisplacedClipping

LEAST_STEPS = 5
"""Number of successive steps with such a call."""
MOST_NORM = 1e4
"""Limits from this on only measure the norm."""
LEAST_NORM = 0.01
"""Limits from this on, after a division by the scale, are taken for ones that the program has multiplied by it."""

Place = tuple[str | None, int | None]


@dataclass
class _Watched:
    """An optimizer, and what has happened since its last step. Keeps no tensor alive."""

    name: str
    at: Place
    place: tuple[int, int] | None = None
    """Parameter group, and position in it, of the parameter whose gradient is looked at."""
    used: object = None
    """State of its gradient after the last step, and after each call that has clipped this gradient since."""
    about: object = None
    """The state before a call that clips it."""
    clipped: object = None
    """The state after a call that clipped another gradient."""
    max_norm: float = 0.0
    clip_at: Place = None, None
    is_late: bool = False
    is_cleared: bool = False
    """Whether the gradient was cleared after it was clipped late."""
    is_scaled: bool = False
    late: int = 0
    """Number of the last steps after which a call has clipped the gradient, but none before."""
    scaled: int = 0
    """Number of the last steps before which a call has clipped a scaled gradient."""
    is_told: bool = False

    def state(self, optimizer: Any) -> object:
        return gradient_state(parameter_at(optimizer, self.place))

    def clips(self, optimizer: Any) -> None:
        """Note that the gradient is about to be clipped."""
        self.about = self.state(optimizer)

    @property
    def has_used(self) -> bool:
        """Whether the optimizer has used the gradient that is clipped, and it has not changed since."""
        return self.about is not None and self.about == self.used

    def clipped_with(self, max_norm: float, at: Place, optimizer: Any, *, is_late: bool) -> None:
        self.max_norm, self.clip_at = max_norm, at
        if is_late:
            self.is_late, self.used = True, self.state(optimizer)
        else:
            self.clipped = self.state(optimizer)

    def cleared(self, optimizer: Any) -> None:
        self.is_cleared |= self.is_late and self.state(optimizer) != self.used

    def begins(self, optimizer: Any) -> None:
        is_late = self.is_late and self.is_cleared and self.clipped is None
        self.late = self.late + 1 if is_late else 0
        self.scaled = self.scaled + 1 if self.is_scaled else 0

    def stepped(self, optimizer: Any) -> None:
        if self.place is None:
            self.place = first_gradient(optimizer)
        self.used, self.clipped = self.state(optimizer), None
        self.is_late = self.is_cleared = self.is_scaled = False


class ClippingWatch:
    """Writes a record of each optimizer whose gradients are clipped after its steps, or while they are scaled."""

    def __init__(
        self, write: Callable[[MisplacedClipping], None], failed: Callable[[str, BaseException], None]
    ) -> None:
        self._write, self._failed = write, failed
        self._watched: WeakKeyDictionary[Any, _Watched] = WeakKeyDictionary()
        self._is_done = False

    def clips(self, parameters: Sequence[Any]) -> None:
        """Note that gradients of parameters are about to be clipped. Raises nothing."""
        self._guarded(lambda: self._clips(parameters))

    def clipped(self, parameters: Sequence[Any], max_norm: object) -> None:
        """Note that they were clipped. Raises nothing."""
        if isinstance(max_norm, (int, float)) and max_norm < MOST_NORM:
            self._guarded(lambda: self._clipped(parameters, float(max_norm)))

    def unscales(self, scaler: Any, optimizer: Any) -> None:
        """Note that a scaler is about to divide the gradients of an optimizer by its scale. Raises nothing."""
        self._guarded(lambda: self._unscales(scaler, optimizer))

    def cleared(self, owner: Any) -> None:
        """Note that `zero_grad` of an optimizer or of a module has ended. Raises nothing."""
        self._guarded(lambda: self._cleared([owner] if isinstance(owner, Optimizer) else [*self._watched]))

    def begins(self, optimizer: Any) -> None:
        """Note that an optimizer is about to step. Raises nothing."""
        self._guarded(lambda: self._begins(optimizer))

    def stepped(self, optimizer: Any) -> None:
        """Note that it has stepped. Raises nothing."""
        self._guarded(lambda: self._stepped(optimizer))

    def after_fork(self) -> None:
        """Forget the steps of the parent, which tells of them."""
        self._watched.clear()

    def _with(self, parameters: Sequence[Any]) -> list[tuple[Any, _Watched]]:
        """Return the optimizers of which nothing is told and whose parameter that is looked at is one of these."""
        return [
            (optimizer, one)
            for optimizer, one in self._watched.items()
            if not one.is_told
            and (looked_at := parameter_at(optimizer, one.place)) is not None
            and any(looked_at is parameter for parameter in parameters)
        ]

    def _clips(self, parameters: Sequence[Any]) -> None:
        for optimizer, watched in self._with(parameters):
            watched.clips(optimizer)

    def _clipped(self, parameters: Sequence[Any], max_norm: float) -> None:
        found = self._with(parameters)
        is_late, at = all(one.has_used for _, one in found), calling_place() if found else (None, None)
        for optimizer, watched in found:
            watched.clipped_with(max_norm, at, optimizer, is_late=is_late)

    def _cleared(self, optimizers: Sequence[Any]) -> None:
        for optimizer in optimizers:
            if (watched := self._watched.get(optimizer)) is not None:
                watched.cleared(optimizer)

    def _unscales(self, scaler: Any, optimizer: Any) -> None:
        watched = self._watched.get(optimizer)
        if watched is None or watched.is_told or watched.clipped is None:
            return
        watched.is_scaled = watched.state(optimizer) == watched.clipped
        if watched.is_scaled and watched.scaled >= LEAST_STEPS - 1 and not is_recording_a_device_graph():
            scale = scaler.get_scale()  # waits for the device
            watched.is_told = True
            if watched.max_norm < LEAST_NORM * scale:
                self._tell(watched, scale)

    def _begins(self, optimizer: Any) -> None:
        watched = self._watched.get(optimizer)
        if watched is not None and not watched.is_told:
            watched.begins(optimizer)
            if watched.late == LEAST_STEPS:
                watched.is_told = True
                self._tell(watched, None)

    def _stepped(self, optimizer: Any) -> None:
        watched = self._watched.get(optimizer)
        if watched is None and len(self._watched) == MOST_OPTIMIZERS:
            self._is_done = True
            return
        if watched is None:
            watched = self._watched[optimizer] = _Watched(type(optimizer).__name__, calling_place())
        if not watched.is_told:
            watched.stepped(optimizer)

    def _tell(self, one: _Watched, scale: float | None) -> None:
        self._write(MisplacedClipping(one.name, LEAST_STEPS, one.max_norm, scale, *one.clip_at, *one.at))

    def _guarded(self, note: Callable[[], object]) -> None:
        if self._is_done:
            return
        try:
            with without_modes():
                note()
        except Exception as error:
            self._is_done = True
            self._failed("clipping of gradients", error)
