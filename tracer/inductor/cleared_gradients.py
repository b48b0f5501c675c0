"""Notes gradients that `zero_grad` of an optimizer or of a module clears before a step has used them.

Between two steps of an optimizer, the first call of `zero_grad` clears the gradients that the first step used, and what
other backward passes have added to them. A later call clears gradients that no step has used, if a backward pass has
run since the call before, if no optimizer has stepped and nothing has written to the parameter meanwhile, as the first
half of a step of SAM does unless it writes by way of `data`, which counts no version, and if the same compiled code
computed the gradients that the second step uses. The gradient of one parameter is looked at; nothing is read from it.
Programs that compute gradients of their inputs are left alone, since they clear those of the parameters on purpose.
Whether a program copies the gradients before, or perturbs `data` with them, is not seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.optim import Optimizer

from stepscope.tracer.inductor.compat import without_modes
from stepscope.tracer.inductor.gradient_places import first_gradient, gradient_state, parameter_at
from stepscope.tracer.inductor.replicas import inputs_of_class
from stepscope.tracer.runtime.program_frames import calling_place
from stepscope.tracer.schema.steps import ClearedGradients

LEAST_STEPS = 5
"""Number of successive steps before each of which gradients are cleared as often."""
MOST_OPTIMIZERS = 16
_MOST_NODES = 1_000
"""Number of nodes of autograd that are looked at for an input."""


@dataclass
class _Watched:
    """An optimizer, and what has happened since its last step. Keeps no tensor alive."""

    name: str
    file: str | None
    line: int | None
    cleared_at: tuple[str | None, int | None] = None, None
    place: tuple[int, int] | None = None
    """Parameter group, and position in it, of the parameter whose gradient is looked at."""
    about: tuple[Any, ...] | None = None
    """State of the parameter and of its gradient before a call of `zero_grad`."""
    before: tuple[Any, ...] | None = None
    """The same after the last call that cleared the gradient; None before the first one."""
    frames: set[object] = field(default_factory=set)
    """Compiled functions whose backward passes have run since then."""
    unused: list[frozenset[object]] = field(default_factory=list)
    """The same for each call that cleared unused gradients."""
    steps: int = 0
    steps_without: int = 0
    streak: int = 0
    """Number of the last steps before each of which `times` calls cleared unused gradients."""
    times: int = 0
    longest: tuple[int, int] = 0, 0
    """The longest streak, and its `times`."""

    def clears(self, optimizer: Any, steps: int) -> None:
        """Note that gradients are about to be cleared, after a number of steps of all optimizers."""
        self.about = self.state(optimizer, steps)

    def cleared(self, optimizer: Any, steps: int) -> None:
        """Note that gradients were cleared; those of a module may be others than those of the optimizer."""
        about, now = self.about, self.state(optimizer, steps)
        if about is not None and about == now and about[1] is not None:
            return
        if self.frames and _is_unused(self.before, about):
            self.unused.append(frozenset(self.frames))
            self.cleared_at = calling_place() if self.cleared_at[0] is None else self.cleared_at
        self.before = now
        self.frames.clear()

    def stepped(self, optimizer: Any) -> None:
        gradient = getattr(parameter_at(optimizer, self.place), "grad", None)
        is_alike = gradient is not None and all(one == self.frames for one in self.unused)
        times = len(self.unused) if is_alike else 0
        self.streak = self.streak + 1 if times == self.times else 1
        self.times = times
        if times:
            self.longest = max(self.longest, (self.streak, times))
        self.steps, self.steps_without = self.steps + 1, self.steps_without + (not times)
        self.begin(optimizer, gradient)

    def begin(self, optimizer: Any, gradient: Any = None) -> None:
        """Forget what has happened before a step."""
        self.before = None
        self.unused.clear()
        self.frames.clear()
        if gradient is None:
            self.place = first_gradient(optimizer)

    def state(self, optimizer: Any, steps: int) -> tuple[Any, ...] | None:
        """Return what changes if the parameter is used, and what does if a backward pass adds to its gradient."""
        parameter = parameter_at(optimizer, self.place)
        if parameter is None:
            return None
        with without_modes():
            return (parameter.data_ptr(), parameter._version, steps), gradient_state(parameter)


class ClearedWatch:
    """Watches `zero_grad` of optimizers, and writes a record of those before whose steps unused gradients were
    cleared."""

    def __init__(self, write: Callable[[ClearedGradients], None], failed: Callable[[str, BaseException], None]) -> None:
        self._write, self._failed = write, failed
        self._watched: WeakKeyDictionary[Any, _Watched] = WeakKeyDictionary()
        self._ended: list[_Watched] = []
        """All that were watched; an optimizer may be gone when the recording ends."""
        self._steps = 0
        self._is_done = False

    def clears(self, owner: Any) -> None:
        """Note that `zero_grad` of an optimizer or of a module begins. Raises nothing."""
        self._guarded(owner, _Watched.clears)

    def cleared(self, owner: Any) -> None:
        """Note that it has ended. Raises nothing."""
        self._guarded(owner, _Watched.cleared)

    def tell(self) -> None:
        """Write the records of a recording that ends."""
        self._tell()
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the steps of the parent, which tells of them."""
        self._watched.clear()
        self._ended.clear()

    def captured(self, module: Any) -> None:
        """Stop if a captured graph has inputs, other than parameters, whose gradients are computed. Raises nothing."""
        if self._is_done:
            return
        try:
            if inputs := [one for _, one in inputs_of_class(module, torch.Tensor)]:
                with without_modes():
                    self._is_done = any(_needs_other_gradients(one) for one in inputs if one.requires_grad)
        except Exception as error:
            self._stop(error)

    def look(self, frame: object, phase: str | None) -> None:
        """Note that a backward pass of a compiled function begins."""
        if phase == "backward" and not self._is_done:
            for one in self._ended:
                one.frames.add(frame)

    def stepped(self, optimizer: Any) -> None:
        """Note that an optimizer has stepped. Raises nothing."""
        if self._is_done:
            return
        try:
            self._steps += 1
            watched = self._watched.get(optimizer)
            if watched is not None:
                with without_modes():
                    watched.stepped(optimizer)
            elif len(self._ended) == MOST_OPTIMIZERS:
                self._is_done = True
            else:
                watched = self._watched[optimizer] = _Watched(type(optimizer).__name__, *calling_place())
                self._ended.append(watched)
                with without_modes():
                    watched.begin(optimizer)
        except Exception as error:
            self._stop(error)

    def _guarded(self, owner: Any, note: Callable[[_Watched, Any, int], None]) -> None:
        if self._is_done:
            return
        try:
            optimizers = [owner] if isinstance(owner, Optimizer) else [*self._watched]
            for optimizer in optimizers:
                if (watched := self._watched.get(optimizer)) is not None:
                    note(watched, optimizer, self._steps)
        except Exception as error:
            self._stop(error)

    def _tell(self) -> None:
        """Write the records if the gradients of all optimizers were cleared as often, unlike those of adversaries."""
        stepped = [one for one in self._ended if one.steps >= LEAST_STEPS]
        is_alike = len({one.longest[1] for one in stepped}) == 1 and not self._is_done
        for one in stepped if is_alike else ():
            steps, times = one.longest
            if steps >= LEAST_STEPS:
                self._write(
                    ClearedGradients(
                        one.name, steps, times, one.steps_without, *one.cleared_at, one.file, one.line
                    )
                )  # fmt: skip

    def _stop(self, error: Exception) -> None:
        self._is_done = True
        self._failed("gradients that are cleared", error)


def _is_unused(before: tuple[Any, ...] | None, about: tuple[Any, ...] | None) -> bool:
    """Return whether the gradient, but not the parameter, is another one than after it was cleared before."""
    if before is None or about is None:
        return False
    return about[0] == before[0] and about[1] not in (None, before[1])


def _needs_other_gradients(tensor: Any) -> bool:
    """Return whether gradients of a tensor that is no parameter are computed for this input of a graph."""
    if tensor.grad_fn is None:
        return True
    waiting, seen = [tensor.grad_fn], set[Any]()
    while waiting and len(seen) < _MOST_NODES:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None and type(variable) is torch.Tensor:
            return True
        waiting += [following for following, _ in node.next_functions]
    return False
