"""Tells when the program has called `state_dict` or `load_state_dict` of a module.

Programs load weights before they compile anything, and thus before a recorder starts by itself. So the calls are
watched from the import of torch on, and the recorder that starts takes over what was seen. Until the first call no
other module of the recorder is imported but `wrapped_functions`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import Module

from stepscope.tracer.inductor.wrapped_functions import WrappedFunctions

if TYPE_CHECKING:
    from stepscope.tracer.inductor.loaded_states import StatesWatch


class StateCalls:
    """Wraps `Module.state_dict` and `Module.load_state_dict` while it is attached. Calls inside of another one, as
    those of hooks, and calls that Dynamo traces are not told."""

    def __init__(self) -> None:
        self._wrapped = WrappedFunctions()
        self._inside: set[int] = set()
        """The threads that run such a method."""

    @functools.cached_property
    def watch(self) -> StatesWatch:
        """What is told of the calls."""
        from stepscope.tracer.inductor.loaded_states import StatesWatch

        return StatesWatch()

    def attach(self) -> None:
        if not self._wrapped:
            self._wrapped.wrap(Module, "state_dict", self._saving)
            self._wrapped.wrap(Module, "load_state_dict", self._loading)

    def detach(self) -> None:
        self._wrapped.restore()

    def _saving(self, original: Callable[..., Any]) -> Callable[..., Any]:
        calls = self

        @functools.wraps(original, updated=())
        def state_dict(self: Any, *arguments: Any, **named: Any) -> Any:
            is_inner = arguments or named.get("destination") is not None or named.get("keep_vars")
            if is_inner or torch.compiler.is_compiling() or (watch := calls._told()) is None:
                return original(self, *arguments, **named)
            with calls._running():
                result = original(self, *arguments, **named)
            watch.saved(self, result)
            return result

        return state_dict

    def _loading(self, original: Callable[..., Any]) -> Callable[..., Any]:
        calls = self

        @functools.wraps(original, updated=())
        def load_state_dict(self: Any, state_dict: Any, *arguments: Any, **named: Any) -> Any:
            if torch.compiler.is_compiling() or (watch := calls._told()) is None:
                return original(self, state_dict, *arguments, **named)
            is_strict, is_assigned = _options(arguments, named)
            if not is_assigned:
                watch.loads(self, state_dict)
            with calls._running():
                result = original(self, state_dict, *arguments, **named)
            watch.loaded(self, state_dict, result, is_strict=is_strict)
            return result

        return load_state_dict

    def _told(self) -> StatesWatch | None:
        """Return what is told of a call, or None if the recording has ended or this thread runs such a method already.
        If it cannot be imported, as while the interpreter exits, calls are watched no longer."""
        if not self._wrapped or threading.get_ident() in self._inside:
            return None
        try:
            return self.watch
        except Exception:
            self.detach()
            return None

    @contextmanager
    def _running(self) -> Iterator[None]:
        thread = threading.get_ident()
        self._inside.add(thread)
        try:
            yield
        finally:
            self._inside.discard(thread)


def _options(arguments: Sequence[Any], named: dict[str, Any]) -> tuple[bool, bool]:
    """Return `strict` and `assign` of a call."""
    strict = named.get("strict", arguments[0] if arguments else True)
    return bool(strict), bool(named.get("assign", arguments[1] if len(arguments) > 1 else False))


_waiting: list[StateCalls] = []
"""What is attached before a recorder takes it over."""


def watch_and_wait() -> None:
    """Watch the calls until a recorder starts."""
    if not _waiting:
        _waiting.append(StateCalls())
        _waiting[0].attach()


def waiting_calls() -> StateCalls | None:
    """Return what waits for a recorder and is the caller's then, or None."""
    return _waiting.pop() if _waiting else None


def stop_waiting() -> None:
    """Watch no longer without a recorder."""
    if (calls := waiting_calls()) is not None:
        calls.detach()
