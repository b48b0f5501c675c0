"""Notes whether the gradients with which an optimizer stepped are still there when the next backward pass begins.

They are if the parameter has a gradient in the same memory, which nothing has written since (its version counter), and
which is not zero. The backward pass of another optimizer's loss may have added to them, as a generator's adds to those
of the critic, and a backward pass of eager code is not seen, before which they may be set to zero; so they must still
be there when the last backward pass before the next step begins, which alone may write them until this step. With one
optimizer each pass may add; but as the first pass may compute other gradients, as those of an input, before these are
set to zero, they must be there in the later ones and at the step, too. Reading a gradient waits for its device, so only
the first ones are read. No weak reference to a tensor is kept: PyTorch refuses to swap tensors that have one, as
`Module.to` may do. Gradients of tensor subclasses are left out, because reading a distributed one may wait for other
ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary, ref

from stepscope.tracer.inductor.compat import without_modes
from stepscope.tracer.runtime.program_frames import calling_place
from stepscope.tracer.schema.steps import KeptGradients

MOST_READ = 8
"""Number of times that a gradient of an optimizer is read."""
MOST_READ_AFTER_OTHERS = 32
"""Number of times that a gradient to which another backward pass has added is read; of several optimizers, no steps
count after that."""
MOST_OPTIMIZERS = 1_000


@dataclass
class _Watched:
    """An optimizer with its last step. Keeps no tensor alive."""

    name: str
    file: str | None
    line: int | None
    place: tuple[int, int] | None = None
    """Parameter group, and position in it, of the parameter whose gradient is looked at."""
    memory: ref[Any] | None = None
    """Storage of the gradient."""
    version: int = -1
    was_kept: bool | None = None
    """Whether the gradient of the last step was still there; None before a backward pass has begun."""
    last_version: int = -1
    """Version of the gradient when the last backward pass began, if another one has added to it since the step."""
    reads: int = 0
    reads_after_others: int = 0
    kept: int = 0
    cleared: int = 0

    def stepped(self, optimizer: Any, is_alone: bool) -> None:
        gradient = self._gradient(optimizer)
        if self.was_kept and is_alone:
            self.was_kept = self._is_in_place(gradient)
        elif self.was_kept:
            self.was_kept = self._is_in_place(gradient) and gradient._version == self.last_version + 1
        if self.was_kept is not None and (is_alone or self.reads_after_others < MOST_READ_AFTER_OTHERS):
            self.kept, self.cleared = self.kept + self.was_kept, self.cleared + (not self.was_kept)
        self.memory = self.was_kept = None
        if gradient is None:
            self.place = _smallest(optimizer)
            gradient = self._gradient(optimizer)
        if gradient is not None:
            self.memory, self.version = ref(gradient.untyped_storage()), gradient._version
            self.last_version = self.version

    def is_kept(self, optimizer: Any, is_alone: bool) -> bool:
        gradient = self._gradient(optimizer)
        if not self._is_in_place(gradient):
            return False
        if gradient._version != self.version:
            return self._is_kept_after_others(gradient, is_alone)
        if self.was_kept:
            return True
        if self.reads >= MOST_READ:
            return self.kept > 0
        self.reads += 1
        return bool(gradient.any())

    def _is_kept_after_others(self, gradient: Any, is_alone: bool) -> bool:
        if self.was_kept and gradient._version == self.last_version:
            return True
        if not self.was_kept or self.reads_after_others >= MOST_READ_AFTER_OTHERS:
            return bool(self.was_kept) and is_alone
        self.reads_after_others += 1
        self.last_version = gradient._version
        return bool(gradient.any())

    def _is_in_place(self, gradient: Any) -> bool:
        memory = self.memory() if self.memory is not None else None
        return gradient is not None and memory is not None and gradient.untyped_storage() is memory

    def _gradient(self, optimizer: Any) -> Any:
        if self.place is None:
            return None
        group, position = self.place
        parameters = [one for found in optimizer.param_groups[group : group + 1] for one in found["params"]]
        return next((one.grad for one in parameters[position : position + 1] if _is_plain(one.grad)), None)


def _smallest(optimizer: Any) -> tuple[int, int] | None:
    """Return the place of the smallest parameter whose gradient can be read."""
    found = [
        (one.numel(), group, position)
        for group, parameters in enumerate(optimizer.param_groups)
        for position, one in enumerate(parameters["params"])
        if _is_plain(one.grad)
    ]
    return min(found)[1:] if found else None


def _is_plain(gradient: Any) -> bool:
    import torch

    is_strided = type(gradient) is torch.Tensor and gradient.layout is torch.strided
    return is_strided and gradient.numel() > 0 and not gradient.is_inference()


class GradientResets:
    """Counts, for each optimizer, the steps after which the gradients were kept, and those after which they were not.

    All backward passes until the next step must find them. Of several optimizers, another one may use the gradients
    first, so that the last one alone may add.
    """

    def __init__(self, write: Callable[[KeptGradients], None], failed: Callable[[str, BaseException], None]) -> None:
        self._write, self._failed = write, failed
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
                if len(self._ended) == MOST_OPTIMIZERS:
                    return
                watched = self._watched[optimizer] = _Watched(type(optimizer).__name__, *calling_place())
                self._ended.append(watched)
            watched.stepped(optimizer, is_alone=len(self._watched) == 1)
        except Exception as error:
            self._stop(error)

    def look(self, phase: str | None) -> None:
        """Look at the gradients of the last steps if a graph of a backward pass begins. Raises nothing."""
        if self._has_failed or phase != "backward":
            return
        try:
            watched = list(self._watched.items())
            due = [(optimizer, one) for optimizer, one in watched if one.was_kept is not False]
            if due:
                with without_modes():
                    for optimizer, one in due:
                        one.was_kept = one.is_kept(optimizer, is_alone=len(watched) == 1)
        except Exception as error:
            self._stop(error)

    def after_fork(self) -> None:
        """Forget the steps of the parent, which tells of them."""
        self._watched.clear()
        self._ended.clear()

    def tell(self) -> None:
        """Write a record of each optimizer that kept gradients."""
        for one in self._ended:
            if one.kept and not self._has_failed:
                self._write(KeptGradients(one.name, one.kept, one.cleared, one.file, one.line))
        self._ended.clear()

    def _stop(self, error: Exception) -> None:
        self._has_failed = True
        self._failed("gradients that are kept", error)
