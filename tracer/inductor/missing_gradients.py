"""Notes which parameters of an optimizer of `torch.optim` have no gradient in its first steps, and what cleared it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from torch.optim import Optimizer

from stepscope.tracer.inductor.compat import without_modes
from stepscope.tracer.runtime.program_frames import calling_place
from stepscope.tracer.schema.steps import MissingGradients

STEPS = 5
"""Number of steps that are looked at."""
MOST_NAMES = 8
_WRAPPED = "_orig_mod."
"""What torch.compile puts before the names of a module's parameters."""


Place = tuple[str | None, int | None]
"""A file and a line."""


@dataclass
class _Watched:
    """What is known of an optimizer after some steps. Keeps its parameters alive until the last one is looked at."""

    missing: list[Any]
    """The parameters that had no gradient in any step."""
    steps: int = 0
    cleared: int = 0
    """Number of steps before which `zero_grad` had cleared the gradients."""
    zero_grad: Place = (None, None)


class GradientWatch:
    """Writes a record of each optimizer some of whose parameters have no gradient in its first steps."""

    def __init__(self, write: Callable[[MissingGradients], None], failed: Callable[[str, BaseException], None]) -> None:
        self._write, self._failed = write, failed
        self._seen: WeakKeyDictionary[Any, _Watched] = WeakKeyDictionary()
        self._cleared: dict[int, Place] = {}
        """Where gradients were cleared since the last step, by a parameter that had one."""
        self._has_failed = False

    def clears(self, owner: Any) -> None:
        """Note that `zero_grad` of an optimizer or of a module begins. Raises nothing."""
        if self._has_failed or (self._seen and all(one.steps == STEPS for one in self._seen.values())):
            return
        try:
            with without_modes():
                trained = _trained(owner) if isinstance(owner, Optimizer) else owner.parameters()
                found = next((one for one in trained if one.grad is not None), None)
            if found is not None:
                self._cleared[id(found)] = calling_place()
        except Exception as error:
            self._fail(error)

    def begins(self, optimizer: Any) -> None:
        """Look at the gradients with which an optimizer is about to step. Raises nothing."""
        if self._has_failed:
            return
        try:
            watched = self._seen.get(optimizer)
            if watched is None:
                watched = self._seen[optimizer] = _Watched(_trained(optimizer))
            if watched.steps == STEPS:
                return
            watched.missing = [one for one in watched.missing if one.grad is None]
            cleared_at = next((self._cleared[id(one)] for one in watched.missing if id(one) in self._cleared), None)
            if cleared_at is not None:
                watched.cleared, watched.zero_grad = watched.cleared + 1, cleared_at
            watched.steps += 1
            if watched.steps == STEPS and watched.missing:
                self._tell(optimizer, watched)
                watched.missing = []
            self._cleared.clear()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._has_failed = True
        self._failed("missing gradients", error)

    def _tell(self, optimizer: Any, watched: _Watched) -> None:
        trained, missing, (file, line) = _trained(optimizer), watched.missing, calling_place()
        names = parameter_names(trained)
        unowned = sum(names[id(one)] is None for one in missing) if any(names.values()) else 0
        shown = sorted(missing, key=lambda one: names[id(one)] is not None)[:MOST_NAMES]
        self._write(
            MissingGradients(
                type(optimizer).__name__, STEPS, len(trained), len(missing), unowned,
                [names[id(one)] for one in shown], [list(one.shape) for one in shown], file, line,
                watched.cleared, *watched.zero_grad,
            )
        )  # fmt: skip


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
    return ".".join(reversed(names)).removeprefix(_WRAPPED) if names else None
