"""Finds parameters with gradients that no optimizer has: those in plain lists and dictionaries, which
`Module.parameters` does not name, and those of layers that a module has got after its optimizer was created.

Dynamo's expressions of the inputs of captured graphs tell such parameters. They are looked for among all objects of the
process once an optimizer that trains other parameters of the same module has stepped a few times. Registered parameters
that the program has changed since they were captured have another way to be trained.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from typing import Any
from weakref import WeakKeyDictionary

from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import Module, Parameter
from torch.optim import Optimizer

from stepscope.tracer.inductor.replicas import inputs_of_class
from stepscope.tracer.runtime.program_frames import calling_place
from stepscope.tracer.schema.steps import UntrainedParameters

STEPS = 5
"""Number of steps after which an optimizer is looked at."""
MOST_NAMES, _MOST_KNOWN = 8, 10_000
_CONTAINER = re.compile(r"\.(?!_modules\[|_parameters\[|_buffers\[|__)(\w+)\[")
"""An attribute with an index or a key, other than those in which a module keeps what it registers."""
_REGISTERED = re.compile(r"\._(?:modules|parameters)\[")


@dataclass(frozen=True)
class _Known:
    """A parameter that a graph takes from a module. Keeps no tensor alive."""

    storage: Any
    """A weak reference to its memory."""
    expression: str
    owner: str
    """The expression of the module."""
    container: str | None
    """That of the list or dictionary in which the parameter is found; None if it is registered."""
    version: int
    """How often the parameter had been changed in place."""


class UntrainedWatch:
    """Writes a record of each list whose parameters have gradients and no optimizer, and one of registered ones."""

    def __init__(
        self, write: Callable[[UntrainedParameters], None], failed: Callable[[str, BaseException], None]
    ) -> None:
        self._write, self._failed = write, failed
        self._known: dict[str, _Known] = {}
        self._steps: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._is_done = False

    def captured(self, module: Any) -> None:
        """Note the parameters that a captured graph takes from modules. Raises nothing."""
        if self._is_done:
            return
        try:
            for expression, one in inputs_of_class(module, Parameter):
                known = _known(expression, one) if one.requires_grad else None
                if known is not None and len(self._known) < _MOST_KNOWN:
                    self._known[expression] = known
        except Exception as error:
            self._stop(error)

    def begins(self, optimizer: Any) -> None:
        """Look for the parameters if an optimizer is about to make its fifth step. Raises nothing."""
        if self._is_done or not self._known:
            return
        try:
            steps = self._steps[optimizer] = self._steps.get(optimizer, 0) + 1
            if steps == STEPS:
                self._look(optimizer)
        except Exception as error:
            self._stop(error)

    def _look(self, optimizer: Any) -> None:
        alive = {one.storage.cdata: one for one in self._known.values() if not one.storage.expired()}
        own = _storages(optimizer)
        trained = [one for storage, one in alive.items() if storage in own]
        held = set().union(*(_storages(one) for one in self._steps))
        waiting = {
            storage: one
            for storage, one in alive.items()
            if storage not in held and any(other.expression.startswith(f"{one.owner}._") for other in trained)
        }
        if waiting:
            self._is_done = True
            self._known.clear()
            self._tell(optimizer, waiting, own)

    def _tell(self, optimizer: Any, waiting: dict[int, _Known], own: set[int]) -> None:
        everything = gc.get_objects()
        held = {storage for one in everything if issubclass(type(one), Optimizer) for storage in _storages(one)}
        versions = {
            _storage(one): one._version
            for one in everything
            if type(one) is Parameter and one.requires_grad and one.grad is not None
        }
        left = [(storage, one) for storage, one in waiting.items() if storage in versions.keys() - held]
        unchanged = [one for storage, one in left if one.container is None and versions[storage] == one.version]
        registered = _registered(everything, own) if len(unchanged) < len(left) else set()
        listed = [one for storage, one in left if one.container is not None and storage not in registered]
        place = type(optimizer).__name__, len(own), *calling_place()
        for container in dict.fromkeys(one.container for one in listed):
            names = [one.expression for one in listed if one.container == container]
            self._write(_record(place, container or "", names, is_registered=False))
        if unchanged:
            names = [one.expression for one in unchanged]
            self._write(_record(place, _common_owner(names), names, is_registered=True))

    def _stop(self, error: Exception) -> None:
        self._is_done = True
        self._known.clear()
        self._failed("untrained parameters", error)


def _record(
    place: tuple[str, int, str | None, int | None], container: str, names: list[str], is_registered: bool
) -> UntrainedParameters:
    optimizer, trained, file, line = place
    return UntrainedParameters(optimizer, trained, container, len(names), names[:MOST_NAMES], file, line, is_registered)


def _known(expression: str, parameter: Any) -> _Known | None:
    """Return what is known of a parameter; None if it is not one of a module."""
    listed, registered = _CONTAINER.search(expression), _REGISTERED.search(expression)
    match = listed or registered
    if match is None:
        return None
    storage = StorageWeakRef(parameter.untyped_storage())  # type: ignore[no-untyped-call]
    owner = expression[: match.start()]
    return _Known(storage, expression, owner, f"{owner}.{listed[1]}" if listed else None, parameter._version)


def _common_owner(expressions: list[str]) -> str:
    """Return the expression of the innermost module that has all of the parameters."""
    paths = [expression.split("._")[:-1] for expression in expressions]
    shared = takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))
    return "._".join(parts[0] for parts in shared)


def _registered(everything: list[Any], trained: set[int]) -> set[int]:
    """Return the parameters of the modules that have one of those that an optimizer trains."""
    modules = [one for one in everything if issubclass(type(one), Module) and "_modules" in one.__dict__]
    parameters = [{_storage(one) for one in Module.parameters(module) if type(one) is Parameter} for module in modules]
    return set().union(*(found for found in parameters if found & trained))


def _storage(parameter: Any) -> int:
    return int(parameter.untyped_storage()._cdata)


def _storages(optimizer: Any) -> set[int]:
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    return {_storage(one) for one in parameters if type(one) is Parameter}
