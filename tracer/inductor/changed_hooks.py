"""Finds hooks of modules that were added or removed after the modules were compiled. Dynamo compiles hooks into the
code and, by default, has no guards on modules without hooks, so that the code goes on as before.

A captured graph tells the modules that the compiled code calls. A hook is known by its function's name and line, since
programs may add a function again for each call.
"""

from __future__ import annotations

import functools
import gc
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch.nn import Module

from stepscope.tracer.inductor.compat import current_compile_id, objects_of_compile
from stepscope.tracer.inductor.shared_parameters import ModuleNames
from stepscope.tracer.schema.steps import ChangedHooks, HookAttribute

MOST_MODULES = 8
"""Number of modules that are told in one log."""
_MOST_KNOWN = 10_000
HOOK_ATTRIBUTES: tuple[HookAttribute, ...] = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_post_accumulate_grad_hooks",
)
"""The attributes in which modules and, as the last one, parameters keep their hooks."""
_NOT_OF_PROGRAMS = "torch", "stepscope"


class Hook(NamedTuple):
    """A hook by the name and the place of its function."""

    attribute: HookAttribute
    name: str
    file: str | None
    line: int | None


@dataclass
class _Compiled:
    """A module that the compiled code of a frame calls. Does not keep it alive."""

    module: ref[Module]
    seen: list[frozenset[Hook]]
    """Its hooks at each compile of the frame, the last one at the end."""


class HooksWatch:
    """Writes a record of each hook that compiled code leaves out, or still runs. Looks at the calls of each frame with
    a power of two as their number."""

    def __init__(self, write: Callable[[ChangedHooks], None], failed: Callable[[str, BaseException], None]) -> None:
        self._write, self._failed = write, failed
        self._compiled: defaultdict[object, dict[int, _Compiled]] = defaultdict(dict)
        """The modules of each frame, by `id`."""
        self._calls: dict[object, int] = {}
        self._modules = self._told = 0
        self._is_done = False

    def captured(self, module: Any) -> None:
        """Note the hooks of the modules that a captured graph calls. Raises nothing."""
        if self._is_done:
            return
        try:
            compile_id = current_compile_id()
            if compile_id is not None and not _has_guards():
                self._note(compile_id.rpartition("/")[0], module)
        except Exception as error:
            self._stop(error)

    def look(self, frame: object, phase: str | None) -> None:
        """Compare the hooks in some calls of a frame. Raises nothing."""
        if frame not in self._compiled or phase == "backward":
            return
        calls = self._calls[frame] = self._calls.get(frame, 0) + 1
        if calls & (calls - 1) or calls == 1:
            return
        try:
            if not _has_guards():
                self._compare(frame, calls)
        except Exception as error:
            self._stop(error)

    def _note(self, frame: str, module: Any) -> None:
        called = _called(module)
        known = self._compiled[frame]
        for one in objects_of_compile() if called else ():
            if id(one) not in called or not issubclass(type(one), Module):
                continue
            called.remove(id(one))
            before = known.get(id(one))
            if before is None or before.module() is not one:
                if self._modules == _MOST_KNOWN:
                    return
                self._modules += 1
                before = known[id(one)] = _Compiled(ref(one), [])
            before.seen.append(_hooks(one))

    def _compare(self, frame: object, calls: int) -> None:
        compiled = self._compiled[frame]
        names: ModuleNames | None = None
        for key, one in [*compiled.items()]:
            module = one.module()
            now = _hooks(module) if module is not None else one.seen[-1]
            if now in one.seen:  # else the code of an earlier compile may run
                continue
            del compiled[key]
            names = names or ModuleNames(all_modules())  # looks through the whole heap
            name = names.of(module)
            for hook in sorted(now ^ one.seen[-1], key=repr):
                self._write(ChangedHooks(str(frame), calls, name, *hook, hook in now))
            self._told += 1
            if self._told == MOST_MODULES:
                self._end()
                return

    def _end(self) -> None:
        self._is_done = True
        self._compiled.clear()

    def _stop(self, error: Exception) -> None:
        self._end()
        self._failed("changed hooks", error)


def _has_guards() -> bool:
    return getattr(torch._dynamo.config, "skip_nnmodule_hook_guards", False) is not True


def _called(graph_module: Any) -> set[int]:
    """Return the `id` of each module that a captured graph calls. That of the frame is not one of them: what calls the
    frame runs its hooks."""
    stacks = (node.meta.get("nn_module_stack") or {} for node in graph_module.graph.nodes)
    return {int(key) for stack in stacks for key in stack if str(key).isdigit()}


def all_modules() -> list[Any]:
    found = (one for one in gc.get_objects() if issubclass(type(one), Module) and "_modules" in one.__dict__)
    return [one for one in found if not isinstance(one, torch.fx.GraphModule)]


def _hooks(module: Any) -> frozenset[Hook]:
    return frozenset(program_hooks(module.__dict__))


def program_hooks(attributes: dict[str, Any]) -> Iterator[Hook]:
    """Yield the hooks in attributes of a module or a parameter, without those of torch itself and the recorder."""
    for attribute in HOOK_ATTRIBUTES:
        for hook in [*_values(attributes.get(attribute))]:
            function = _function(hook)
            if str(getattr(function, "__module__", "")).partition(".")[0] in _NOT_OF_PROGRAMS:
                continue
            code = getattr(function, "__code__", None)
            name = str(getattr(function, "__qualname__", None) or type(function).__qualname__)
            place = (str(code.co_filename), int(code.co_firstlineno)) if code is not None else (None, None)
            yield Hook(attribute, name, *place)


def _values(hooks: Any) -> Iterable[Any]:
    return hooks.values() if isinstance(hooks, dict) else ()


def _function(hook: Any) -> Any:
    """Return the function behind a partial function, a bound method or what a decorator has made."""
    for _ in range(10):
        inner = hook.func if isinstance(hook, functools.partial) else getattr(hook, "__func__", None)
        inner = inner if inner is not None else getattr(hook, "__wrapped__", None)
        if inner is None:
            break
        hook = inner
    return hook
