"""Records at which FX node a compile failed, and compiles without a compile id that failed.

The latter are those of graphs that reach Inductor without Dynamo; PyTorch's own log explains few of them. Every graph
passes through `_compile_fx_inner` (torch/_inductor/compile_fx.py).
"""

from __future__ import annotations

import functools
from contextlib import ExitStack
from traceback import walk_tb
from typing import Any, Protocol

from stepscope.tracer.inductor import compat
from stepscope.tracer.inductor.sources.dynamo_graphs import parse_stack
from stepscope.tracer.schema.gaps import CompileError
from stepscope.tracer.schema.raised_calls import FailedNode

COMPILER = "torch._inductor.compile_fx", "_compile_fx_inner"
_AT_WORK = "torch._inductor.", "torch.fx.interpreter"
MOST_LETTERS, MOST_LINE = 16_000, 1_000


class FailedCompileSink(Protocol):
    """The part of the recorder that is used here."""

    def compile_error(self, record: CompileError) -> None: ...
    def failed_node(self, record: FailedNode) -> None: ...
    def failed(self, where: str, error: BaseException) -> None: ...


class FailedCompiles:
    """Records each exception that a compile raises."""

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
            if not self._is_attached:
                return
            kind, text, compile_id = type(error).__qualname__, str(error), compat.current_compile_id()
            if compile_id is None:
                self._sink.compile_error(CompileError(kind, text[:MOST_LETTERS]))
            node = _node_at_work(error)
            if node is not None:
                first, stack = text.partition("\n")[0], parse_stack(str(node.meta.get("stack_trace") or ""))
                record = FailedNode(
                    compile_id, kind, first[:MOST_LINE], node.name, str(node.target), stack[-1] if stack else None
                )
                self._sink.failed_node(record)
        except Exception as failure:
            self._sink.failed("failed compile", failure)


def _node_at_work(error: BaseException) -> Any | None:
    """Return the FX node of the innermost frame that works on one, or one that its scheduler node computes; else None.

    Lowering names its node ``n`` (`GraphLowering.run_node`), code generation names scheduler nodes ``node``."""
    from torch.fx import Node

    for frame, _ in reversed(list(walk_tb(error.__traceback__))):
        if str(frame.f_globals.get("__name__", "")).startswith(_AT_WORK):
            for name in ("n", "node"):
                found = frame.f_locals.get(name)
                if not isinstance(found, Node):
                    origins = getattr(getattr(found, "node", found), "origins", None) or ()
                    found = next((one for one in origins if one.meta.get("stack_trace")), None)
                if isinstance(found, Node):
                    return found
    return None
