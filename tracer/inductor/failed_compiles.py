"""Records failed compiles that have no compile id, such as those of graphs that reach Inductor without Dynamo.

PyTorch's own log explains few of them. Every graph passes through `_compile_fx_inner`
(torch/_inductor/compile_fx.py).
"""

from __future__ import annotations

import functools
from contextlib import ExitStack
from typing import Any, Protocol

from stepscope.tracer.inductor import compat
from stepscope.tracer.schema.gaps import CompileError

COMPILER = "torch._inductor.compile_fx", "_compile_fx_inner"
MOST_LETTERS = 16_000


class FailedCompileSink(Protocol):
    """The part of the recorder that is used here."""

    def compile_error(self, record: CompileError) -> None: ...
    def failed(self, where: str, error: BaseException) -> None: ...


class FailedCompiles:
    """Records each exception that such a compile raises."""

    def __init__(self, sink: FailedCompileSink) -> None:
        self._sink = sink
        self._undo = ExitStack()
        self._is_attached = False

    def attach(self) -> None:
        """Wrap Inductor's compiler; does nothing before it is imported, nor a second time."""
        module: Any = compat.loaded(*COMPILER)
        if module is None or self._is_attached:
            return
        self._is_attached = True
        name, original = COMPILER[1], getattr(module, COMPILER[1])

        @functools.wraps(original)
        def compile_inner(*arguments: Any, **named: Any) -> Any:
            try:
                return original(*arguments, **named)
            except Exception as error:
                self._tell(error)
                raise

        setattr(module, name, compile_inner)
        self._undo.callback(setattr, module, name, original)

    def detach(self) -> None:
        self._undo.close()
        self._is_attached = False

    def _tell(self, error: Exception) -> None:
        try:
            if self._is_attached and compat.current_compile_id() is None:
                self._sink.compile_error(CompileError(type(error).__qualname__, str(error)[:MOST_LETTERS]))
        except Exception as failure:
            self._sink.failed("failed compile", failure)
