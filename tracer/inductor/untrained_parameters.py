"""Finds parameters with gradients that no optimizer has: those in plain lists and dictionaries, which
`Module.parameters` does not name, and those of layers that a module has got after its optimizer was created.

Dynamo's expressions of the inputs of captured graphs tell such parameters. They are looked for among all objects of the
process once an optimizer that trains other parameters of the same module has stepped a few times. Registered parameters
that change between two looks have another way to be trained.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any
from weakref import WeakKeyDictionary

from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import Module, Parameter
from torch.optim import Optimizer

from stepscope.tracer.inductor.compat import without_modes
from stepscope.tracer.inductor.eager_runs import is_recording_a_device_graph
from stepscope.tracer.inductor.replicas import inputs_of_class
from stepscope.tracer.runtime.program_frames import calling_place
from stepscope.tracer.schema.steps import UntrainedParameters

FIRST, STEPS = 3, 5
"""Steps of an optimizer before which the parameters that no optimizer has are looked at."""
MOST_NAMES, _MOST_KNOWN = 8, 10_000
MOST_OPTIMIZERS, MOST_LOOKS = 16, 4
"""Each look takes as long as a look at all objects of the process; programs with more optimizers have one for each
parameter, or make new ones all the time."""
_SAMPLE = 64
"""Number of elements by which a change is seen that autograd does not count."""
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

    @property
    def place(self) -> str:
        return self.container or self.owner


class UntrainedWatch:
    """Writes a record of each list whose parameters have gradients and no optimizer, and one of each module with
    registered ones."""

    def __init__(
        self, write: Callable[[UntrainedParameters], None], failed: Callable[[str, BaseException], None]
    ) -> None:
        self._write, self._failed = write, failed
        self._known: dict[int, _Known] = {}
        """What is known of each parameter, by its memory."""
        self._steps: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._samples: dict[int, Any] = {}
        """The first elements of registered parameters at the first look, by their memory."""
        self._looks = 0
        self._is_done = False

    def captured(self, module: Any) -> None:
        """Note the parameters that a captured graph takes from modules. Raises nothing."""
        if self._is_done:
            return
        try:
            for expression, one in inputs_of_class(module, Parameter):
                is_trained = one.requires_grad and not one.is_inference() and len(self._known) < _MOST_KNOWN
                known = _known(expression, one) if is_trained else None
                if known is not None:
                    self._known[known.storage.cdata] = known
        except Exception as error:
            self._stop(error)

    def begins(self, optimizer: Any) -> None:
        """Look for the parameters if an optimizer is about to make one of two steps. Raises nothing."""
        if self._is_done or not self._known:
            return
        try:
            steps = self._steps[optimizer] = self._steps.get(optimizer, 0) + 1
            if len(self._steps) > MOST_OPTIMIZERS:
                self._end()
            elif steps in (FIRST, STEPS) and not is_recording_a_device_graph():
                with without_modes():
                    self._look(optimizer, is_last=steps == STEPS)
        except Exception as error:
            self._stop(error)

    def _look(self, optimizer: Any, *, is_last: bool) -> None:
        alive = {storage: one for storage, one in self._known.items() if not one.storage.expired()}
        own = _storages(optimizer)
        trained = [one for storage, one in alive.items() if storage in own]
        held = set().union(*map(_storages, self._steps))
        waiting = {
            storage: one
            for storage, one in alive.items()
            if storage not in held and any(other.expression.startswith(f"{one.owner}._") for other in trained)
        }
        if not waiting:
            return
        everything = gc.get_objects()
        left = _without_optimizer(everything, waiting)
        registered = _registered(everything, own)
        unlisted = [storage for storage in left if waiting[storage].container is None and storage in registered]
        if not is_last:
            self._samples |= {storage: _sample(left[storage]).clone() for storage in unlisted}
            return
        unchanged = [waiting[storage] for storage in unlisted if self._is_unchanged(storage, left[storage])]
        listed = [waiting[storage] for storage in left if waiting[storage].container and storage not in registered]
        self._tell(optimizer, len(own), listed, unchanged)
        self._looks += 1
        if listed or unchanged or self._looks == MOST_LOOKS:
            self._end()

    def _is_unchanged(self, storage: int, parameter: Any) -> bool:
        sample = self._samples.get(storage)
        return sample is not None and bool((sample == _sample(parameter)).all())

    def _tell(self, optimizer: Any, trained: int, listed: list[_Known], unchanged: list[_Known]) -> None:
        name, (file, line) = type(optimizer).__name__, calling_place()
        for is_registered, found in ((False, listed), (True, unchanged)):
            for place in dict.fromkeys(one.place for one in found):
                names = [one.expression for one in found if one.place == place]
                container = _common_owner(names) if is_registered else place
                self._write(
                    UntrainedParameters(
                        name, trained, container, len(names), names[:MOST_NAMES], file, line, is_registered
                    )
                )

    def _end(self) -> None:
        self._is_done = True
        self._known.clear()
        self._samples.clear()

    def _stop(self, error: Exception) -> None:
        self._end()
        self._failed("untrained parameters", error)


def _known(expression: str, parameter: Any) -> _Known | None:
    """Return what is known of a parameter; None if it is not one of a module."""
    listed, registered = _CONTAINER.search(expression), _REGISTERED.search(expression)
    match = listed or registered
    if match is None:
        return None
    storage = StorageWeakRef(parameter.untyped_storage())  # type: ignore[no-untyped-call]
    owner = expression[: match.start()]
    return _Known(storage, expression, owner, f"{owner}.{listed[1]}" if listed else None)


def _without_optimizer(everything: Iterable[Any], wanted: Mapping[int, _Known]) -> dict[int, Any]:
    """Return those of some parameters that have gradients, and that no optimizer of the process has, by memory."""
    held = {storage for one in everything if issubclass(type(one), Optimizer) for storage in _storages(one)}
    found = {
        _storage(one): one
        for one in everything
        if type(one) is Parameter and one.requires_grad and one.grad is not None
    }
    return {storage: found[storage] for storage in wanted if storage in found and storage not in held}


def _sample(parameter: Any) -> Any:
    """Return the first elements in the memory of a parameter."""
    return parameter.detach().as_strided((min(parameter.numel(), _SAMPLE),), (1,))


def _common_owner(expressions: list[str]) -> str:
    """Return the expression of the innermost module that has all of the parameters."""
    paths = [expression.split("._")[:-1] for expression in expressions]
    shared = takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))
    return "._".join(parts[0] for parts in shared)


def _registered(everything: Iterable[Any], trained: set[int]) -> set[int]:
    """Return the parameters of the modules that have one of those that an optimizer trains."""
    modules = [one for one in everything if issubclass(type(one), Module) and "_modules" in one.__dict__]
    parameters = [{_storage(one) for one in Module.parameters(module) if type(one) is Parameter} for module in modules]
    return set().union(*(found for found in parameters if found & trained))


def _storage(parameter: Any) -> int:
    return int(parameter.untyped_storage()._cdata)


def _storages(optimizer: Any) -> set[int]:
    groups = getattr(optimizer, "param_groups", ())  # a wrapper may not have called Optimizer.__init__
    return {_storage(one) for group in groups for one in group["params"] if type(one) is Parameter}
