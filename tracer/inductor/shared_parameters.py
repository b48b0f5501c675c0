"""Finds parameters that an optimizer trains and whose memory other parameters of modules share, which no optimizer
trains: those of a teacher or of a target network that was to be a copy. If there are none, tensors in containers are
looked for, such as those of a `state_dict()`.

The modules are looked for among all objects of the process, and only if something else shows the memory of a parameter.
Whether the program writes to the memory is seen from one step to the next by its version counter.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import Module, Parameter
from torch.optim import Optimizer

from stepscope.tracer.inductor.compat import without_modes
from stepscope.tracer.inductor.eager_runs import is_recording_a_device_graph
from stepscope.tracer.inductor.replicas import inputs_of_class
from stepscope.tracer.inductor.uncopied_tensors import Uncopied, uncopied_tensors
from stepscope.tracer.runtime.program_frames import calling_place
from stepscope.tracer.schema.constants import COMPILED_MODULE
from stepscope.tracer.schema.steps import SharedParameters

LOOK, TELL = 2, 3
"""Steps of an optimizer before which the modules are looked for, and before which they are told."""
MOST_NAMES, _MOST_KNOWN, _DEEPEST = 8, 10_000, 100
MOST_OPTIMIZERS, MOST_LOOKS = 16, 4
"""Each look takes as long as a look at all objects of the process."""
_UNSHARED = 2
"""Number of references to a storage that one tensor and its `UntypedStorage` have."""

_Place = tuple[int, int, tuple[int, ...], tuple[int, ...], torch.dtype]
"""The memory that a parameter shows: its storage, with offset, sizes, strides and dtype."""


@dataclass(frozen=True)
class _Owned:
    """A parameter of a module. Keeps none of the two alive."""

    module: ref[Module]
    key: str
    name: str

    def parameter(self) -> Any:
        module = self.module()
        return module._parameters.get(self.key) if module is not None else None


@dataclass
class _Found:
    """The parameters of an optimizer that others share."""

    pairs: list[tuple[_Owned, _Owned | Uncopied]]
    """A parameter that the optimizer trains, and one that it does not; the first ones."""
    number: int
    is_in_graph: bool
    are_tensors: bool
    versions: list[int | None] = field(default_factory=list)
    """Of the second ones, at the end of the step."""

    def is_written(self) -> bool:
        """Return whether one that is still alive was written since."""
        return any(now not in (None, then) for now, then in zip(self.now(), self.versions, strict=False))

    def now(self) -> list[int | None]:
        others = [other.parameter() for _, other in self.pairs]
        with without_modes():
            return [one._version if one is not None else None for one in others]


class SharedWatch:
    """Writes a record of each optimizer that trains parameters whose memory others share."""

    def __init__(self, write: Callable[[SharedParameters], None], failed: Callable[[str, BaseException], None]) -> None:
        self._write, self._failed = write, failed
        self._steps: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._found: WeakKeyDictionary[Any, _Found] = WeakKeyDictionary()
        self._in_graph: dict[_Place, Any] = {}
        """Weak references to the memory that two inputs of one captured graph show."""
        self._looks = 0
        self._is_done = False

    def captured(self, module: Any) -> None:
        """Note the memory that two inputs of a captured graph show, parameters or `detach`ed ones. Raises nothing."""
        if self._is_done:
            return
        try:
            first: dict[_Place, Any] = {}
            inputs = [*inputs_of_class(module, Parameter), *inputs_of_class(module, torch.Tensor)]
            with without_modes() if inputs else nullcontext():
                for _, one in inputs:
                    is_second = _is_plain(one) and first.setdefault(_place(one), one) is not one
                    if is_second and len(self._in_graph) < _MOST_KNOWN:
                        memory = StorageWeakRef(one.untyped_storage())  # type: ignore[no-untyped-call]
                        self._in_graph[_place(one)] = memory
        except Exception as error:
            self._stop(error)

    def begins(self, optimizer: Any) -> None:
        """Look for shared parameters if an optimizer is about to make one of two steps. Raises nothing."""
        if self._is_done:
            return
        try:
            steps = self._steps[optimizer] = self._steps.get(optimizer, 0) + 1
            if len(self._steps) > MOST_OPTIMIZERS:
                self._end()
            elif steps == LOOK and self._looks < MOST_LOOKS and not is_recording_a_device_graph():
                with without_modes():
                    self._look(optimizer)
            elif steps == TELL and (found := self._found.pop(optimizer, None)) is not None:
                self._tell(optimizer, found)
        except Exception as error:
            self._stop(error)

    def stepped(self, optimizer: Any) -> None:
        """Note what counts the writes to the parameters that were found. Raises nothing."""
        if not self._found:
            return
        try:
            if (found := self._found.get(optimizer)) is not None:
                found.versions = found.now()
        except Exception as error:
            self._stop(error)

    def _look(self, optimizer: Any) -> None:
        trained = {_place(one): one for one in _parameters(optimizer) if one.requires_grad and one.grad is not None}
        if not any(map(_is_shared, trained.values())):
            return
        self._looks += 1
        everything = gc.get_objects()
        heap = _Heap(everything)
        if pairs := heap.pairs(trained):
            places = {_place(one) for one in (owned.parameter() for owned, _ in pairs)}
            is_in_graph = any(place in places and not memory.expired() for place, memory in self._in_graph.items())
            self._found[optimizer] = _Found([*pairs[:MOST_NAMES]], len(pairs), is_in_graph, False)
        else:
            tensors, number = uncopied_tensors(everything, _place, trained, MOST_NAMES)
            if owned := heap.owned(trained, tensors):
                self._found[optimizer] = _Found(owned, number, False, True)

    def _tell(self, optimizer: Any, found: _Found) -> None:
        is_written = found.is_written()
        if found.are_tensors and not is_written:  # they may have been read only
            return
        file, line = calling_place()
        self._write(
            SharedParameters(
                type(optimizer).__name__, found.number, [one.name for one, _ in found.pairs],
                [other.name for _, other in found.pairs], found.is_in_graph, is_written,
                file, line, found.are_tensors,
            )
        )  # fmt: skip

    def _end(self) -> None:
        self._is_done = True
        self._found.clear()
        self._in_graph.clear()

    def _stop(self, error: Exception) -> None:
        self._end()
        self._failed("shared parameters", error)


class _Heap:
    """The modules and the optimizers among all objects of the process."""

    def __init__(self, everything: list[Any]) -> None:
        found = [one for one in everything if issubclass(type(one), (Module, Optimizer))]
        self._optimizers = [one for one in found if issubclass(type(one), Optimizer)]
        self._modules = [one for one in found if issubclass(type(one), Module) and "_modules" in one.__dict__]

    def pairs(self, trained: dict[_Place, Any]) -> list[tuple[_Owned, _Owned]]:
        """Return the parameters of modules that an optimizer trains, with each one that shows the same memory and that
        no optimizer trains."""
        held = {id(one) for optimizer in self._optimizers for one in _parameters(optimizer) if one.requires_grad}
        others = dict[int, tuple[_Place, Any, str]]()
        for module, key, one in _registered(self._modules):
            place = _place(one)
            if place in trained and trained[place] is not one and id(one) not in held:
                others.setdefault(id(one), (place, module, key))
        if not others:
            return []
        owners, named = self._owners(trained), ModuleNames(self._modules)
        pairs = [(owners[place], (module, key)) for place, module, key in others.values() if place in owners]
        return [(named.owned(*owner), named.owned(*other)) for owner, other in pairs]

    def owned(
        self, trained: dict[_Place, Any], tensors: list[tuple[Any, Uncopied]]
    ) -> list[tuple[_Owned, _Owned | Uncopied]]:
        """Return the parameters of modules that show the places of tensors, with these."""
        if not tensors:
            return []
        owners, named = self._owners(trained), ModuleNames(self._modules)
        return [(named.owned(*owners[place]), one) for place, one in tensors if place in owners]

    def _owners(self, trained: dict[_Place, Any]) -> dict[_Place, tuple[Any, str]]:
        owners = dict[_Place, tuple[Any, str]]()
        for module, key, one in _registered(self._modules):
            if trained.get(place := _place(one)) is one:
                owners.setdefault(place, (module, key))
        return owners


class ModuleNames:
    """Names modules and parameters from the innermost module that a variable of the program's main module holds, or
    from the class of the outermost one."""

    def __init__(self, modules: list[Any]) -> None:
        self._modules = modules
        self._parents = {
            id(child): (key, one)
            for one in modules
            for key, child in [*one._modules.items()]
            if child is not None and key != COMPILED_MODULE
        }
        variables = [*vars(sys.modules["__main__"]).items()]
        held = [(name, one) for name, one in variables if issubclass(type(one), Module)]
        self._variables = {id(one._modules.get(COMPILED_MODULE)): name for name, one in held}
        self._variables |= {id(one): name for name, one in held}

    def of(self, module: Any) -> str:
        """Return the name of a module, such as ``model.layers.1``."""
        names, outer = list[str](), module
        while id(outer) not in self._variables and id(outer) in self._parents and len(names) < _DEEPEST:
            name, outer = self._parents[id(outer)]
            names.append(name)
        names.append(self._variables.get(id(outer), type(outer).__name__))
        return ".".join(reversed(names))

    def of_parameters(self, parameters: list[Any]) -> list[str | None]:
        """Return the names of parameters; None for those that no module has."""
        wanted, owners = {id(one) for one in parameters}, dict[int, tuple[Any, str]]()
        for module in self._modules:
            for key, own in [*module._parameters.items()]:
                if id(own) in wanted:
                    owners.setdefault(id(own), (module, key))
        found = [owners.get(id(one)) for one in parameters]
        return [f"{self.of(owner[0])}.{owner[1]}" if owner is not None else None for owner in found]

    def owned(self, module: Any, key: str) -> _Owned:
        return _Owned(ref(module), key, f"{self.of(module)}.{key}")


def _registered(modules: Iterable[Any]) -> Iterator[tuple[Any, str, Any]]:
    """Yield the parameters of modules; graphs that torch.fx has captured may have others for the same memory."""
    for module in modules:
        if not isinstance(module, torch.fx.GraphModule):
            for key, one in [*module.__dict__.get("_parameters", {}).items()]:
                if type(one) is Parameter and _is_plain(one):
                    yield module, key, one


def _parameters(optimizer: Any) -> list[Any]:
    groups = getattr(optimizer, "param_groups", ())  # a wrapper may not have called Optimizer.__init__
    return [one for group in groups for one in group["params"] if type(one) is Parameter and _is_plain(one)]


def _is_plain(tensor: Any) -> bool:
    is_real = not tensor.is_meta and not tensor.is_inference()
    return is_real and tensor.layout is torch.strided and tensor.numel() > 0


def _place(parameter: Any) -> _Place:
    storage = int(parameter.untyped_storage()._cdata)
    return storage, parameter.storage_offset(), tuple(parameter.shape), parameter.stride(), parameter.dtype


def _is_shared(parameter: Any) -> bool:
    """Return whether another tensor may show the memory of a parameter; older versions of torch do not tell."""
    count: Callable[[int], int] | None = getattr(torch._C, "_storage_Use_Count", None)
    return count is None or count(parameter.untyped_storage()._cdata) > _UNSHARED
