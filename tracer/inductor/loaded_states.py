"""Finds calls of `load_state_dict` that do not load what the program means them to load."""

from __future__ import annotations

import math
from cmath import isclose
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

import torch
from torch.nn.parameter import Parameter, is_lazy

from stepscope.tracer.inductor.compat import without_modes
from stepscope.tracer.inductor.eager_runs import is_recording_a_device_graph
from stepscope.tracer.inductor.key_prefixes import explained_by
from stepscope.tracer.inductor.uncopied_states import SavedStates
from stepscope.tracer.runtime.program_frames import calling_place
from stepscope.tracer.schema.constants import COMPILED_MODULE

if TYPE_CHECKING:
    from stepscope.tracer.schema.states import UncopiedState, UnmatchedKeys

MOST_TOLD = 8
"""Number of calls that are told in one log."""
Write = Callable[["UnmatchedKeys | UncopiedState"], None]
Failed = Callable[[str, BaseException], None]
_MOST_VALUES, _TOLERANCE = 8, 0.01
"""Values that are compared, and how much a conversion to another dtype may change them."""


class _Slot(NamedTuple):
    """Where a module has a parameter or a buffer. Keeps none of them alive."""

    module: ref[Any]
    name: str

    def place(self) -> tuple[int, str] | None:
        """Return the `id` of the module with the name, or None if the module is no longer alive."""
        module = self.module()
        return (id(module), self.name) if module is not None else None

    def values(self) -> list[Any] | None:
        """Return the first values of a parameter; None of one without values of its own."""
        module = self.module()
        one = dict([*module._parameters.items()]).get(self.name) if module is not None else None
        if type(one) is not Parameter or one.is_meta or one.layout is not torch.strided or one.numel() == 0:
            return None
        if is_recording_a_device_graph():
            return None
        row = one.detach()
        while row.dim() > 1:
            row = row[0]
        values: list[Any] = row.reshape(-1)[:_MOST_VALUES].tolist()
        return values


class _Unmatched(NamedTuple):
    """A call that left tensors as they were. Keeps none of them alive."""

    record: UnmatchedKeys
    slots: list[_Slot]
    """The tensors that no other call has loaded since."""
    largest: _Slot
    """The one of them with most elements."""
    values: list[Any] | None

    def lacks_most(self) -> bool:
        """Return whether most of the tensors are still in use and not loaded."""
        return 2 * sum(slot.place() is not None for slot in self.slots) > self.record.explained

    def is_written(self) -> bool:
        """Return whether the program itself has written to the tensors since. The counter of their writes does not
        tell: DistributedDataParallel writes the same values to them."""
        now = self.largest.values()
        if now is None:
            return False
        return self.values is None or not all(map(_is_close, now, self.values))


class StatesWatch:
    """Writes a record of each call that misses tensors because of a prefix, once compiled code is about to run without
    another call or a loop of the program that has loaded the tensors, and of each call that gets the module's own
    parameters in place of copies."""

    def __init__(self) -> None:
        self._write: Write | None = None
        self._failed: Failed | None = None
        self._unmatched: list[_Unmatched] = []
        self._saved = SavedStates()
        self._told = 0
        self._places: set[tuple[object, object]] = set()
        """Where uncopied tensors were saved and loaded that are told."""
        self._is_done = False

    def begin(self, write: Write, failed: Failed) -> None:
        """Write records with `write` from now on; what was seen before waits for it."""
        self._write, self._failed = write, failed

    def after_fork(self) -> None:
        """Forget the calls of the parent, which tells of them."""
        self._unmatched.clear()

    def tell(self) -> None:
        """Write the records that wait, since compiled code is about to run. Raises nothing."""
        if self._unmatched and self._write is not None:
            self._guarded(self._tell)

    def saved(self, module: Any, state: Any) -> None:
        """Note what `state_dict()` of a module has returned. Raises nothing."""
        self._guarded(lambda: self._saved.add(module, state))

    def stepped(self, optimizer: Any) -> None:
        """Note that an optimizer has stepped. Raises nothing."""
        if self._saved.has_some:
            self._guarded(lambda: self._saved.stepped(optimizer))

    def loads(self, module: Any, given: Any) -> None:
        """Note that `load_state_dict()` is about to copy tensors. Raises nothing."""
        if self._saved.has_some and isinstance(given, dict):
            self._guarded(lambda: self._look_for_uncopied(module, given))

    def loaded(self, module: Any, given: Any, result: Any, *, is_strict: bool) -> None:
        """Note that `load_state_dict()` has returned. Raises nothing."""
        self._guarded(lambda: self._loaded(module, given, result, is_strict))

    def _tell(self) -> None:
        waiting, self._unmatched = self._unmatched, []
        left = [one for one in waiting if one.lacks_most() and not one.is_written()]
        for one in left[: MOST_TOLD - self._told]:
            self._told += 1
            if self._write is not None:
                self._write(one.record)

    def _loaded(self, module: Any, given: Any, result: Any, is_strict: bool) -> None:
        if self._unmatched:
            self._forget_loaded(module, result)
        if not is_strict and result.missing_keys and result.unexpected_keys:
            self._note_unmatched(module, given, result)

    def _look_for_uncopied(self, module: Any, given: dict[str, Any]) -> None:
        changed = self._saved.uncopied(module, given)
        if changed is None or self._write is None or self._told >= MOST_TOLD:
            return
        places = changed.place, calling_place()
        if places not in self._places:
            from stepscope.tracer.schema.states import UncopiedState

            self._places.add(places)
            self._told += 1
            found = changed.optimizer, changed.parameters, changed.steps
            self._write(UncopiedState(_class_name(module), *found, *places[0], *places[1]))

    def _guarded(self, note: Callable[[], None]) -> None:
        if self._is_done:
            return
        try:
            with without_modes():
                note()
        except Exception as error:
            self._stop(error)

    def _forget_loaded(self, module: Any, result: Any) -> None:
        missing = {*result.missing_keys}
        loaded = {slot.place() for key, slot, _ in _tensors(module) if key not in missing}
        for one in self._unmatched:
            one.slots[:] = [slot for slot in one.slots if slot.place() not in loaded]
        self._forget_unused()

    def _forget_unused(self) -> None:
        self._unmatched = [one for one in self._unmatched if one.lacks_most()]

    def _note_unmatched(self, module: Any, given: Any, result: Any) -> None:
        self._forget_unused()
        own = {key: (slot, _shape(one)) for key, slot, one in _tensors(module)}
        missing = {key: own[key][1] for key in result.missing_keys if key in own}
        unexpected = {key: _shape(given[key]) for key in result.unexpected_keys if key in given}
        found = explained_by(_with_shapes(missing), _with_shapes(unexpected))
        if found is None or len(self._unmatched) == MOST_TOLD:
            return
        explained = len(found.keys)
        if 2 * explained >= len(own) or (found.is_of_torch and 2 * explained >= len(unexpected)):
            from stepscope.tracer.schema.states import UnmatchedKeys

            record = UnmatchedKeys(
                _class_name(module), len(own), len(missing), explained, found.given, found.own, found.given_key,
                *calling_place(),
            )  # fmt: skip
            largest = own[max(found.keys, key=lambda key: _size(*own[key]))][0]
            slots = [*{own[key][0].place(): own[key][0] for key in found.keys}.values()]
            self._unmatched.append(_Unmatched(record, slots, largest, largest.values()))

    def _stop(self, error: Exception) -> None:
        self._is_done = True
        self._unmatched.clear()
        self._saved = SavedStates()
        if self._failed is not None:
            self._failed("calls of load_state_dict", error)


def _tensors(module: Any) -> Iterator[tuple[str, _Slot, Any]]:
    """Yield the keys, the places and the tensors that `load_state_dict` of a module loads."""
    for prefix, part in module.named_modules(remove_duplicate=False):
        for name, one in [*part._parameters.items(), *part._buffers.items()]:
            if one is not None and name not in part._non_persistent_buffers_set:
                yield (f"{prefix}.{name}" if prefix else name), _Slot(ref(part), name), one


def _shape(tensor: Any) -> tuple[int, ...] | None:
    """Return the shape of a tensor; None of other objects and of parameters without one, as those of lazy modules."""
    has_shape = issubclass(type(tensor), torch.Tensor) and not is_lazy(tensor)
    return tuple(tensor.shape) if has_shape else None


def _size(slot: _Slot, shape: tuple[int, ...] | None) -> tuple[bool, int]:
    """Return a number that is larger for parameters, which programs may have given random values, than for buffers."""
    module = slot.module()
    return module is not None and slot.name in module._parameters, math.prod(shape or ())


def _is_close(value: Any, other: Any) -> bool:
    return isclose(value, other, rel_tol=_TOLERANCE)


def _with_shapes(shapes: dict[str, tuple[int, ...] | None]) -> dict[str, tuple[int, ...]]:
    return {key: shape for key, shape in shapes.items() if shape is not None}


def _class_name(module: Any) -> str:
    inner = module._modules.get(COMPILED_MODULE)
    return type(inner if inner is not None else module).__name__
