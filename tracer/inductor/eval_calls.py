"""Notes the lines that put a module into eval mode."""

from __future__ import annotations

import functools
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import torch
from torch.nn import Module

from stepscope.tracer.inductor.wrapped_functions import WrappedFunctions
from stepscope.tracer.runtime.program_frames import calling_place
from stepscope.tracer.schema.states import EvalCall

MOST_CALLS = 64


class EvalCalls:
    """Wraps `Module.eval` while it is attached, and writes a record of each of the first calls for a module in train
    mode. Dynamo traces what the wrapper calls."""

    def __init__(self, write: Callable[[EvalCall], None], failed: Callable[[str, BaseException], None]) -> None:
        self._write, self._failed = write, failed
        self._wrapped = WrappedFunctions()
        self._left = MOST_CALLS

    def attach(self) -> None:
        if not self._wrapped:
            self._wrapped.wrap(Module, "eval", self._noting)

    def detach(self) -> None:
        self._wrapped.restore()

    def _noting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        calls = self

        @functools.wraps(original, updated=())
        def eval(self: Any) -> Any:
            if not torch.compiler.is_compiling() and calls._left and calls._wrapped:
                calls._note(self)
            return original(self)

        return eval

    def _note(self, module: Any) -> None:
        try:
            if module.training:
                self._left -= 1
                self._write(EvalCall(perf_counter_ns(), *calling_place()))
        except Exception as error:
            self._failed("calls of eval", error)
