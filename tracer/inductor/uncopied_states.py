"""Finds tensors of a `state_dict()` that are loaded after an optimizer has changed them, since they are no copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

import torch
from torch.nn import Parameter

from stepscope.tracer.inductor.gradient_places import first_gradient, parameter_at
from stepscope.tracer.runtime.program_frames import calling_place

_MOST_SAVED, _MOST_TENSORS = 16, 10_000
Place = tuple[str, int] | tuple[None, None]


class Changed(NamedTuple):
    """An optimizer that has changed tensors of a `state_dict()`."""

    optimizer: str
    parameters: int
    """The number of parameters that were to be restored and that it trains."""
    steps: int
    """The number of steps of optimizers since."""
    place: Place
    """The place that calls `state_dict`."""


@dataclass
class _Saved:
    """What a call of `state_dict()` has returned. Keeps no tensor alive."""

    tensors: list[ref[Any]]
    step: int
    """Number of steps of optimizers before."""
    place: Place

    def is_alive(self) -> bool:
        return any(one() is not None for one in self.tensors)


class _Step(NamedTuple):
    """The last step of an optimizer."""

    number: int
    at: tuple[int, int]
    """Position of a parameter that it has changed."""
    version: int
    """Counts the writes to this parameter, as of the end of the step."""


class SavedStates:
    """The tensors that calls of `state_dict()` have returned, and the last steps of optimizers."""

    def __init__(self) -> None:
        self._saved: list[_Saved] = []
        self._last: WeakKeyDictionary[Any, _Step] = WeakKeyDictionary()
        self._steps = 0

    @property
    def has_some(self) -> bool:
        return bool(self._saved)

    def add(self, module: Any, state: Any) -> None:
        """Note what a call has returned, except parameters and buffers of the module themselves: these may be swapped
        (`torch.utils.swap_tensors`), which weak references prevent."""
        values = [*state.values()] if isinstance(state, dict) else []
        own = {id(one) for one in (*module.parameters(), *module.buffers())}
        tensors = [ref(one) for one in values if type(one) is torch.Tensor and id(one) not in own][:_MOST_TENSORS]
        self._saved = [one for one in self._saved if one.is_alive()][-_MOST_SAVED + 1 :]
        if tensors:
            self._saved.append(_Saved(tensors, self._steps, calling_place()))

    def stepped(self, optimizer: Any) -> None:
        """Note that an optimizer has changed its parameters, unless its rates are zero, as those of a step that only
        makes the state of the optimizer (torch/distributed/checkpoint/state_dict.py)."""
        at = first_gradient(optimizer)
        if at is not None and not all(_is_zero(group.get("lr")) for group in optimizer.param_groups):
            self._steps += 1
            self._last[optimizer] = _Step(self._steps, at, parameter_at(optimizer, at)._version)

    def uncopied(self, module: Any, given: Any) -> Changed | None:
        """Return what has changed tensors that are loaded into a module, if they are the module's own parameters."""
        if not self._saved or not self._last:
            return None
        loaded = {id(one) for one in given.values()}
        for saved in reversed(self._saved):
            own = {id(one) for one in (weak() for weak in saved.tensors) if one is not None} & loaded
            found = [self._changed(module, given, saved, own, one) for one in self._last] if own else []
            if changed := next(filter(None, found), None):
                return changed
        return None

    def _changed(self, module: Any, given: Any, saved: _Saved, own: set[int], optimizer: Any) -> Changed | None:
        """Return what an optimizer has changed if nobody has written to it since, as to load a checkpoint in place."""
        last, trained = self._last[optimizer], _parameters(optimizer)
        looked_at = parameter_at(optimizer, last.at)
        if last.number <= saved.step or looked_at is None or looked_at._version != last.version:
            return None
        pairs = [(given[key], one) for key, one in module.named_parameters(remove_duplicate=False)
                 if id(one) in trained and key in given]  # fmt: skip
        if pairs and all(id(value) in own and _is_same(value, one) for value, one in pairs):
            return Changed(type(optimizer).__name__, len(pairs), self._steps - saved.step, saved.place)
        return None


def _is_zero(rate: Any) -> bool:
    is_known = not isinstance(rate, torch.Tensor) or (type(rate) is torch.Tensor and rate.device.type == "cpu")
    return is_known and rate is not None and float(rate) == 0


def _parameters(optimizer: Any) -> set[int]:
    return {id(one) for group in optimizer.param_groups for one in group["params"]}


def _is_same(tensor: Any, parameter: Any) -> bool:
    """Return whether a tensor shows the memory of a parameter."""
    if type(parameter) is not Parameter or parameter.is_meta or parameter.layout is not torch.strided:
        return False
    return bool(tensor.shape == parameter.shape and tensor.data_ptr() == parameter.data_ptr() != 0)
