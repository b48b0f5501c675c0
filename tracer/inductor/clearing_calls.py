"""Tells when `zero_grad` of an optimizer of `torch.optim`, or of a module, clears gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._compile import _disable_dynamo
from torch.nn import Module
from torch.optim import Optimizer

Tell = Callable[[Any], None]
"""Gets the optimizer or the module whose gradients are cleared."""


class ClearingCalls:
    """Wraps `Optimizer.zero_grad` and `Module.zero_grad` while it is attached."""

    def __init__(self, before: Tell, after: Tell) -> None:
        self._before, self._after = before, after
        self._wrapped: dict[Any, tuple[Any, Any]] = {}
        """The original and the wrapper by class."""

    def attach(self) -> None:
        if not self._wrapped:
            # Dynamo leaves that of optimizers to Python, and traces that of modules.
            self._wrap(Optimizer, _disable_dynamo(self._telling(Optimizer.zero_grad)))
            self._wrap(Module, _unless_traced(Module.zero_grad, self._telling(Module.zero_grad)))

    def detach(self) -> None:
        """Restore what was wrapped, unless somebody else has wrapped it since."""
        for owner, (original, wrapper) in self._wrapped.items():
            if owner.zero_grad is wrapper:
                owner.zero_grad = original
        self._wrapped.clear()

    def _wrap(self, owner: Any, wrapper: Any) -> None:
        self._wrapped[owner] = owner.zero_grad, wrapper
        owner.zero_grad = wrapper

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
