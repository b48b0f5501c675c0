"""Finds hooks of parameters and of modules that a program registers in each step and never removes, so that each step
runs one more of them. They are counted before three steps of an optimizer; a hook is known by its function's name and
line. Handles of hooks are numbered (torch/utils/hooks.py), so that a program which registers fewer hooks than it has
steps costs nothing but a look at the last number."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary, ref

from torch.nn import Parameter
from torch.utils.hooks import RemovableHandle

from stepscope.tracer.inductor.changed_hooks import HOOK_ATTRIBUTES, Hook, all_modules, program_hooks
from stepscope.tracer.inductor.compat import without_modes
from stepscope.tracer.inductor.shared_parameters import ModuleNames
from stepscope.tracer.runtime.program_frames import calling_place
from stepscope.tracer.schema.steps import PiledHooks

EVERY, LOOKS = 6, 3
"""Number of steps from one count to the next, and number of counts."""
MOST_OPTIMIZERS = 4
"""Each one takes a look at all objects of the process; programs with more have one for each parameter."""
MOST_FUNCTIONS = 8
_OF_PARAMETERS = "_backward_hooks", "_post_accumulate_grad_hooks"


@dataclass
class _Pile:
    """Hooks of one function. Does not keep their parameter or module alive."""

    owner: ref[Any]
    hook: Hook
    count: int

    def has_grown(self) -> bool:
        """Count the hooks again, and return whether each step has added one."""
        owner, before = self.owner(), self.count
        self.count = _hooks(owner)[self.hook] if owner is not None else 0
        return self.count >= before + EVERY


class PilesWatch:
    """Writes a record of each function that is registered as a hook in each step."""

    def __init__(self, write: Callable[[PiledHooks], None], failed: Callable[[str, BaseException], None]) -> None:
        self._write, self._failed = write, failed
        self._steps: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._piles: WeakKeyDictionary[Any, list[_Pile]] = WeakKeyDictionary()
        self._told: set[Hook] = set()
        self._registered: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        """The number of hooks that were registered before the first step of each optimizer."""
        self._is_done = False

    def begins(self, optimizer: Any) -> None:
        """Count the hooks if an optimizer is about to make one of three steps. Raises nothing."""
        if self._is_done:
            return
        try:
            steps = self._steps[optimizer] = self._steps.get(optimizer, 0) + 1
            registered = RemovableHandle.next_id
            if steps == 1:
                self._registered[optimizer] = registered
            if registered - self._registered[optimizer] < steps - 1:
                return
            if len(self._steps) > MOST_OPTIMIZERS:
                self._end()
            elif steps % EVERY == 0 and steps <= EVERY * LOOKS:
                with without_modes():
                    self._look(optimizer, steps)
        except Exception as error:
            self._end()
            self._failed("hooks that pile up", error)

    def _look(self, optimizer: Any, steps: int) -> None:
        if steps == EVERY:
            found = _piles([*_parameters(optimizer), *_modules_with_hooks()])
        else:
            found = [one for one in self._piles.pop(optimizer, ()) if one.has_grown()]
        if found and steps < EVERY * LOOKS:
            self._piles[optimizer] = found
        elif found:
            self._tell(found, steps)

    def _tell(self, found: list[_Pile], steps: int) -> None:
        piles = defaultdict[Hook, list[_Pile]](list)
        for one in found:
            if one.hook not in self._told:
                piles[one.hook].append(one)
        names = ModuleNames(all_modules())
        for hook, same in [*piles.items()][: MOST_FUNCTIONS - len(self._told)]:
            self._told.add(hook)
            owner = same[0].owner()
            is_parameter = isinstance(owner, Parameter)
            name = (names.of_parameters([owner])[0] or "a parameter") if is_parameter else names.of(owner)
            self._write(PiledHooks(*hook, name, is_parameter, len(same), same[0].count, steps, *calling_place()))

    def _end(self) -> None:
        self._is_done = True
        self._piles.clear()


def _piles(owners: Iterable[Any]) -> list[_Pile]:
    counted = ((owner, _hooks(owner)) for owner in owners)
    return [_Pile(ref(owner), hook, n) for owner, hooks in counted for hook, n in hooks.items() if n >= EVERY]


def _hooks(owner: Any) -> Counter[Hook]:
    if isinstance(owner, Parameter):
        return Counter(program_hooks({name: getattr(owner, name, None) for name in _OF_PARAMETERS}))
    return Counter(program_hooks(owner.__dict__))


def _parameters(optimizer: Any) -> list[Any]:
    found = (one for group in optimizer.param_groups for one in group["params"] if type(one) is Parameter)
    return [one for one in found if any(getattr(one, name, None) for name in _OF_PARAMETERS)]


def _modules_with_hooks() -> list[Any]:
    return [one for one in all_modules() if any(one.__dict__.get(name) for name in HOOK_ATTRIBUTES)]
