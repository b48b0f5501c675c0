"""Tells when `zero_grad` of an optimizer of `torch.optim`, or of a module, clears gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._compile import _disable_dynamo
from torch.nn import Module
from torch.optim import Optimizer

from stepscope.tracer.inductor.wrapped_functions import WrappedFunctions

Tell = Callable[[Any], None]
"""Gets the optimizer or the module whose gradients are cleared."""


class ClearingCalls:
    """Wraps `Optimizer.zero_grad` and `Module.zero_grad` while it is attached."""

    def __init__(self, before: Tell, after: Tell) -> None:
        self._before, self._after = before, after
        self._wrapped = WrappedFunctions()

    def attach(self) -> None:
        if not self._wrapped:
            # Dynamo leaves that of optimizers to Python, and traces that of modules.
            self._wrapped.wrap(Optimizer, "zero_grad", lambda original: _disable_dynamo(self._telling(original)))
            self._wrapped.wrap(Module, "zero_grad", lambda original: _unless_traced(original, self._telling(original)))

    def detach(self) -> None:
        self._wrapped.restore()

    def _telling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original, updated=())  # Dynamo keeps its own wrapper in an attribute
        def zero_grad(owner: Any, *arguments: Any, **named: Any) -> Any:
            if not self._wrapped:  # the recording has ended, and another library calls this wrapper
                return original(owner, *arguments, **named)
            self._before(owner)
            result = original(owner, *arguments, **named)
            self._after(owner)
            return result

        return zero_grad


def _unless_traced(original: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original, updated=())
    def zero_grad(owner: Any, *arguments: Any, **named: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(owner, *arguments, **named)
        return wrapper(owner, *arguments, **named)

    return zero_grad
