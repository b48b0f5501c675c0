"""Notes whether the gradients with which an optimizer stepped are still there when the next backward pass begins.

They are if the parameter has the same gradient tensor, which nothing has written since (its version counter), and
which is not zero. Reading a gradient waits for its device, so only the first ones are read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary, ref

from stepscope.tracer.inductor.compat import without_modes
from stepscope.tracer.runtime.program_frames import calling_frame
from stepscope.tracer.schema.steps import KeptGradients

MOST_READ = 8
"""Number of steps of an optimizer after which a gradient is read."""


@dataclass
class _Watched:
    """An optimizer with its last step. Keeps no tensor alive."""

    name: str
    file: str | None
    line: int | None
    parameter: ref[Any] | None = None
    gradient: ref[Any] | None = None
    version: int = -1
    was_kept: bool | None = None
    """Whether the gradient of the last step was still there; None before a backward pass has begun."""
    kept: int = 0
    cleared: int = 0

    def stepped(self, optimizer: Any) -> None:
        if self.was_kept is not None:
            self.kept, self.cleared = self.kept + self.was_kept, self.cleared + (not self.was_kept)
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        found = [one for one in parameters if one.grad is not None and one.numel() > 0 and not one.grad.is_sparse]
        parameter = min(found, key=lambda one: int(one.numel()), default=None)
        self.parameter = self.gradient = self.was_kept = None
        if parameter is not None:
            self.parameter, self.gradient = ref(parameter), ref(parameter.grad)
            self.version = parameter.grad._version

    def is_kept(self) -> bool:
        parameter = self.parameter() if self.parameter is not None else None
        gradient: Any = self.gradient() if self.gradient is not None else None
        is_same = gradient is not None and gradient is getattr(parameter, "grad", None)
        if not is_same or gradient._version != self.version:
            return False
        return self.kept >= MOST_READ or bool(gradient.any())


class GradientResets:
    """Counts, for each optimizer, the steps after which the gradients were kept, and those after which they were not.

    With one optimizer the first backward pass after its step decides. Of several optimizers, another one may use the
    gradients first, so that all backward passes until the next step must find them unchanged.
    """

    def __init__(self, write: Callable[[KeptGradients], None]) -> None:
        self._write = write
        self._watched: WeakKeyDictionary[Any, _Watched] = WeakKeyDictionary()
        self._ended: list[_Watched] = []
        """All that were watched; an optimizer may be gone when the recording ends."""
        self._has_failed = False

    def stepped(self, optimizer: Any) -> None:
        """Note the gradients with which `optimizer` has stepped. Raises nothing."""
        if self._has_failed:
            return
        try:
            watched = self._watched.get(optimizer)
            if watched is None:
                frame = calling_frame(sys._getframe())
                place = (frame.f_code.co_filename, frame.f_lineno) if frame is not None else (None, None)
                watched = self._watched[optimizer] = _Watched(type(optimizer).__name__, *place)
                self._ended.append(watched)
            watched.stepped(optimizer)
        except Exception:
            self._has_failed = True

    def look(self, phase: str | None) -> None:
        """Look at the gradients of the last steps if a graph of a backward pass begins. Raises nothing."""
        if self._has_failed or phase != "backward":
            return
        try:
            with without_modes():
                for one in self._watched.values():
                    if one.was_kept is None or (one.was_kept and len(self._watched) > 1):
                        one.was_kept = one.is_kept()
        except Exception:
            self._has_failed = True

    def tell(self) -> None:
        """Write a record of each optimizer that kept gradients."""
        for one in self._ended:
            if one.kept and not self._has_failed:
                self._write(KeptGradients(one.name, one.kept, one.cleared, one.file, one.line))
        self._ended.clear()
