"""Wraps functions of which each call is a step, such as `generate` of transformers, which calls a model per token.

This imports no module: a function is wrapped once the program has imported its module.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

FUNCTIONS = (
    ("transformers.models.whisper.generation_whisper", "WhisperGenerationMixin", "generate"),
    ("transformers.generation.utils", "GenerationMixin", "generate"),
)
"""Functions to wrap; callers come before callees: Whisper's calls that of its base class per segment of the audio."""


class WholeCalls:
    """Reports when the outermost call of one of `FUNCTIONS` begins and ends in a thread."""

    def __init__(self, on_call: Callable[[bool], None]) -> None:
        """Create the wrapper; `on_call(begins)` must not raise."""
        self._on_call = on_call
        self._wrapped: dict[tuple[str, str, str], tuple[Any, Any, Any]] = {}
        """Class, original function and wrapper of each wrapped function."""
        self._depth = threading.local()
        self._running: tuple[int, CodeType] | None = None
        """Thread and code of a call that had begun before its function was wrapped."""

    def attach(self) -> None:
        """Wrap the functions whose modules have been imported since the last call."""
        if len(self._wrapped) == len(FUNCTIONS):
            return
        for place in FUNCTIONS:
            module, owner, name = place
            found = getattr(sys.modules.get(module), owner, None)
            function = getattr(found, "__dict__", {}).get(name)
            if place not in self._wrapped and inspect.isfunction(function):
                wrapper = self._wrap(function)
                setattr(found, name, wrapper)
                self._wrapped[place] = found, function, wrapper
                self._look_for_running(inspect.unwrap(function).__code__)

    def detach(self) -> None:
        """Restore the functions; one that other code has wrapped meanwhile stays, and only passes calls on."""
        for (_, _, name), (owner, before, wrapper) in self._wrapped.items():
            if owner.__dict__.get(name) is wrapper:
                setattr(owner, name, before)
        self._wrapped.clear()

    def look(self) -> None:
        """Check, when a graph is called, whether a call that had begun before it was wrapped has ended."""
        if self._is_within() and self._running is not None and not _runs(self._running[1]):
            self._end_running()

    def _look_for_running(self, code: CodeType) -> None:
        if self._running is None and _runs(code):
            self._running = threading.get_ident(), code
            self._on_call(True)

    def _is_within(self) -> bool:
        return self._running is not None and self._running[0] == threading.get_ident()

    def _end_running(self) -> None:
        self._running = None
        self._on_call(False)

    def _wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        import torch

        depth, is_compiling = self._depth, torch.compiler.is_compiling

        @functools.wraps(function)
        def whole_call(*args: Any, **kwargs: Any) -> Any:
            if is_compiling() or not self._wrapped:
                return function(*args, **kwargs)
            self.look()
            outer = getattr(depth, "now", 0)
            is_outermost = not outer and not self._is_within()
            depth.now = outer + 1
            if is_outermost:
                self._on_call(True)
            try:
                return function(*args, **kwargs)
            finally:
                depth.now = outer
                if is_outermost:
                    self._on_call(False)

        return whole_call


def _runs(code: CodeType) -> bool:
    """Return whether a frame of this thread runs `code`."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None
