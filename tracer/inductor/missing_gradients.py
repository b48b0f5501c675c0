"""Notes which parameters of an optimizer of `torch.optim` have no gradient in its first steps, and what cleared it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from torch.optim import Optimizer

from stepscope.tracer.inductor.compat import undisturbed, without_modes
from stepscope.tracer.inductor.eager_runs import may_wait
from stepscope.tracer.runtime.program_frames import calling_place
from stepscope.tracer.schema.constants import COMPILED_PREFIX
from stepscope.tracer.schema.steps import MissingGradients

STEPS, STEPS_IF_ALL = 5, 20
"""Number of steps that are looked at, and that of an optimizer without any gradient."""
MOST_CLEARS = 200
"""Number of calls of `zero_grad` that are looked at."""
MOST_NAMES = 8
Place = tuple[str | None, int | None]
"""A file and a line."""
Holding = Callable[[list[Any]], tuple[int, Place] | None]
"""Returns how many of some parameters run in reentrant checkpoints that give them no gradient, and the place of one."""


@dataclass
class _Watched:
    """What is known of an optimizer after some steps. Keeps its parameters alive until the last one is looked at."""

    missing: list[Any]
    """The parameters that had no gradient in any step."""
    place: Place
    """Where it first stepped."""
    steps: int = 0
    cleared: int = 0
    """Number of steps before which `zero_grad` had cleared the gradients."""
    zero_grad: Place = (None, None)
    is_told: bool = False


class GradientWatch:
    """Writes a record of each optimizer some of whose parameters have no gradient in its first steps. Of those without
    any gradient, only classes of `torch.optim` count, because others may not read gradients, and more steps, unless
    `zero_grad` has cleared the gradients before each, because a part of a program may begin to train later."""

    def __init__(
        self,
        write: Callable[[MissingGradients], None],
        failed: Callable[[str, BaseException], None],
        in_checkpoints: Holding = lambda _: None,
    ) -> None:
        self._write, self._failed, self._in_checkpoints = write, failed, in_checkpoints
        self._seen: WeakKeyDictionary[Any, _Watched] = WeakKeyDictionary()
        self._cleared: dict[int, Place] = {}
        """Where gradients were cleared since the last step of their optimizer, by parameter."""
        self._zeroed: dict[int, tuple[int, int]] = {}
        """The gradients that were set to zero and their versions then, which a backward pass changes, by parameter."""
        self._clears = 0
        self._has_failed = False

    def clears(self, owner: Any) -> None:
        """Note that `zero_grad` of an optimizer or of a module begins. Raises nothing."""
        if self._has_failed or self._clears == MOST_CLEARS:
            return
        try:
            self._clears += 1
            with without_modes():
                had = [id(one) for one in _of(owner) if one.grad is not None]
            self._cleared.update(dict.fromkeys(had, calling_place()))
            if self._clears == MOST_CLEARS:
                self._cleared.clear()
                self._zeroed.clear()
        except Exception as error:
            self._fail(error)

    def cleared(self, owner: Any) -> None:
        """Note that `zero_grad` of an optimizer or of a module has ended. Raises nothing."""
        if self._has_failed or self._clears == MOST_CLEARS:
            return
        try:
            with without_modes():
                self._zeroed.update((id(one), _version(one.grad)) for one in _of(owner) if one.grad is not None)
        except Exception as error:
            self._fail(error)

    def begins(self, optimizer: Any) -> None:
        """Look at the gradients with which an optimizer is about to step. Raises nothing."""
        if self._has_failed:
            return
        try:
            watched = self._seen.get(optimizer)
            if watched is None:
                watched = self._seen[optimizer] = _Watched(_trained(optimizer), calling_place())
            if not watched.is_told:
                self._look(optimizer, watched)
        except Exception as error:
            self._fail(error)

    def tell(self) -> None:
        """Write the records of optimizers without any gradient in a recording that ends early. Raises nothing."""
        try:
            for optimizer, watched in [*self._seen.items()]:
                if watched.steps >= STEPS and not watched.is_told and not self._has_failed:
                    self._tell(optimizer, watched)
            self.after_fork()
        except Exception as error:
            self._fail(error)

    def after_fork(self) -> None:
        """Forget the steps of the parent, which tells of them."""
        self._seen.clear()
        self._cleared.clear()
        self._zeroed.clear()

    def _look(self, optimizer: Any, watched: _Watched) -> None:
        watched.missing = [one for one in watched.missing if self._is_empty(one)]
        places = [place for one in watched.missing if (place := self._cleared.pop(id(one), None)) is not None]
        if places:
            watched.cleared, watched.zero_grad = watched.cleared + 1, places[0]
        watched.steps += 1
        is_whole = len(watched.missing) == len(_trained(optimizer)) and watched.cleared < watched.steps
        if watched.steps >= (STEPS_IF_ALL if is_whole else STEPS):
            self._tell(optimizer, watched)

    def _is_empty(self, one: Any) -> bool:
        return one.grad is None or self._zeroed.get(id(one)) == _version(one.grad)

    def _fail(self, error: Exception) -> None:
        self._has_failed = True
        self._failed("missing gradients", error)

    def _tell(self, optimizer: Any, watched: _Watched) -> None:
        missing, trained, (file, line) = _without_values(watched.missing), _trained(optimizer), watched.place
        watched.missing, watched.is_told = [], True
        is_of_torch = type(optimizer).__module__.startswith("torch.optim.")
        if not missing or (len(missing) == len(trained) and not is_of_torch):
            return
        names = parameter_names(trained)
        unowned = sum(names[id(one)] is None for one in missing) if any(names.values()) else 0
        shown = sorted(missing, key=lambda one: names[id(one)] is not None)[:MOST_NAMES]
        checkpointed, checkpoint = self._in_checkpoints(missing) or (0, (None, None))
        self._write(
            MissingGradients(
                type(optimizer).__name__, watched.steps, len(trained), len(missing), unowned,
                [names[id(one)] for one in shown], [list(one.shape) for one in shown], file, line,
                watched.cleared, *watched.zero_grad, checkpointed, *checkpoint,
            )
        )  # fmt: skip


def _without_values(parameters: list[Any]) -> list[Any]:
    """Return the parameters without a gradient, or with one that is zero: its version does not change where other code
    than PyTorch's operators writes it."""
    missing = [one for one in parameters if one.grad is None]
    cleared = [one for one in parameters if one.grad is not None]
    if not cleared or not may_wait():
        return missing
    with undisturbed():
        zero = [id(one) for one in cleared if not one.grad.any()]
    return [one for one in parameters if one.grad is None or id(one) in zero]


def _version(gradient: Any) -> tuple[int, int]:
    return id(gradient), gradient._version


def _of(owner: Any) -> Iterable[Any]:
    return _trained(owner) if isinstance(owner, Optimizer) else owner.parameters()


def _trained(optimizer: Any) -> list[Any]:
    return [one for group in optimizer.param_groups for one in group["params"] if one.requires_grad]


def parameter_names(parameters: list[Any]) -> dict[int, str | None]:
    """Return the names of parameters in the outermost module that has them, by id; None if no module has one. Looks at
    all objects of the process, which takes a while."""
    from torch.nn import Module

    modules = [one for one in gc.get_objects() if issubclass(type(one), Module) and "_modules" in one.__dict__]
    parents = {id(child): (name, one) for one in modules for name, child in one._modules.items() if child is not None}
    owners = {id(held): (name, one) for one in modules for name, held in one._parameters.items() if held is not None}
    return {id(one): _path(owners.get(id(one)), parents) for one in parameters}


def _path(place: tuple[str, Any] | None, parents: dict[int, tuple[str, Any]]) -> str | None:
    names: list[str] = []
    while place is not None and len(names) < 100:
        names.append(place[0])
        place = parents.get(id(place[1]))
    return ".".join(reversed(names)).removeprefix(COMPILED_PREFIX) if names else None
