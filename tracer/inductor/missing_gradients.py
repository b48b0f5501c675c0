"""Notes which parameters of an optimizer of `torch.optim` have no gradient in its first steps."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from stepscope.tracer.runtime.program_frames import calling_place
from stepscope.tracer.schema.steps import MissingGradients

STEPS = 5
"""Number of steps that are looked at."""
MOST_NAMES = 8
_WRAPPED = "_orig_mod."
"""What torch.compile puts before the names of a module's parameters."""


class GradientWatch:
    """Writes a record of each optimizer some of whose parameters, but not all, have no gradient in its first steps."""

    def __init__(self, write: Callable[[MissingGradients], None], failed: Callable[[str, BaseException], None]) -> None:
        self._write, self._failed = write, failed
        self._seen: WeakKeyDictionary[Any, tuple[int, list[Any]]] = WeakKeyDictionary()
        """Number of steps of an optimizer, and the parameters that had no gradient in any of them."""
        self._has_failed = False

    def begins(self, optimizer: Any) -> None:
        """Look at the gradients with which an optimizer is about to step. Raises nothing."""
        if self._has_failed:
            return
        try:
            steps, missing = self._seen.get(optimizer, (0, []))
            if steps >= STEPS:
                return
            missing = [one for one in (missing if steps else _trained(optimizer)) if one.grad is None]
            if steps + 1 == STEPS and missing:
                self._tell(optimizer, missing)
            self._seen[optimizer] = steps + 1, missing if steps + 1 < STEPS else []
        except Exception as error:
            self._has_failed = True
            self._failed("missing gradients", error)

    def _tell(self, optimizer: Any, missing: list[Any]) -> None:
        trained = _trained(optimizer)
        if len(missing) == len(trained):
            return
        names = parameter_names(trained)
        unowned = sum(names[id(one)] is None for one in missing) if any(names.values()) else 0
        shown = sorted(missing, key=lambda one: names[id(one)] is not None)[:MOST_NAMES]
        self._write(
            MissingGradients(
                type(optimizer).__name__, STEPS, len(trained), len(missing), unowned,
                [names[id(one)] for one in shown], [list(one.shape) for one in shown], *calling_place(),
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
