"""Tells when gradients are clipped by their norm, and when `GradScaler` divides them by its scale."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch._compile import _disable_dynamo
from torch.amp.grad_scaler import GradScaler
from torch.nn.utils import clip_grad

from stepscope.tracer.inductor.wrapped_functions import WrappedFunctions


class ClippingWatcher(Protocol):
    """Is told of the calls."""

    def clips(self, parameters: Sequence[Any]) -> None: ...
    def clipped(self, parameters: Sequence[Any], max_norm: object) -> None: ...
    def unscales(self, scaler: Any, optimizer: Any) -> None: ...


class ClippingCalls:
    """Wraps what `clip_grad_norm_` and `GradScaler` call while it is attached. A program may have imported these
    already, so that they themselves cannot be replaced. Dynamo traces `clip_grad_norm_`, so that compiled code which
    calls it is compiled again after it is attached or detached; it leaves `GradScaler` to Python."""

    def __init__(self, watch: ClippingWatcher) -> None:
        self._watch = watch
        self._wrapped = WrappedFunctions()

    def attach(self) -> None:
        if not self._wrapped:
            self._wrapped.wrap(clip_grad, "_clip_grads_with_norm_", self._clipping)
            self._wrapped.wrap(
                GradScaler, "_unscale_grads_", lambda original: _disable_dynamo(self._unscaling(original))
            )

    def detach(self) -> None:
        self._wrapped.restore()

    def _clipping(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original, updated=())
        def clip(parameters: Any, max_norm: Any, *arguments: Any, **named: Any) -> Any:
            if torch.compiler.is_compiling() or not self._wrapped or not isinstance(parameters, list):
                return original(parameters, max_norm, *arguments, **named)
            self._watch.clips(parameters)
            result = original(parameters, max_norm, *arguments, **named)
            self._watch.clipped(parameters, max_norm)
            return result

        return clip

    def _unscaling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original, updated=())
        def unscale(scaler: Any, optimizer: Any, *arguments: Any, **named: Any) -> Any:
            if self._wrapped:
                self._watch.unscales(scaler, optimizer)
            return original(scaler, optimizer, *arguments, **named)

        return unscale
