"""Instruments graphs that run as Dynamo captured them (``backend="eager"``); each operation counts as a launch.

Such a backend returns `GraphModule.forward`, whose code torch.fx has generated
(torch/fx/graph.py, `CodeGen._gen_python_code`); it gets hooks as a wrapper of Inductor does. Code that other
backends generate is not seen; for every captured graph `dynamo_graphs` keeps the source lines.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from types import FunctionType
from typing import Any, Protocol

from stepscope.tracer.inductor import code_swap, compat
from stepscope.tracer.inductor.replicas import replicated
from stepscope.tracer.inductor.sources import provenance
from stepscope.tracer.inductor.sources.dynamo_graphs import DynamoGraphs
from stepscope.tracer.inductor.wrapper_hook import frame_of
from stepscope.tracer.runtime import launches
from stepscope.tracer.schema.graphs import (
    Argument,
    Graph,
    LaunchSite,
    MemoryEvent,
    MemoryStatement,
    Provenance,
    ReplicatedParameters,
)
from stepscope.tracer.wrapper.expressions import buffer_of, dotted
from stepscope.tracer.wrapper.parsed import LaunchStatement, WrapperSource
from stepscope.tracer.wrapper.storage_points import storages_at_points

CAPTURED = "torch._dynamo.output_graph", "OutputGraph"
OPERATORS = {
    "Add": "add", "Sub": "sub", "Mult": "mul", "MatMult": "matmul", "Div": "truediv", "FloorDiv": "floordiv",
    "Mod": "mod", "Pow": "pow", "LShift": "lshift", "RShift": "rshift", "BitAnd": "and_", "BitOr": "or_",
    "BitXor": "xor", "USub": "neg", "Invert": "invert", "Lt": "lt", "LtE": "le", "Gt": "gt", "GtE": "ge",
    "Eq": "eq", "NotEq": "ne", "Is": "is_", "IsNot": "is_not",
}  # fmt: skip


class PlainGraphSink(launches.CallSink, Protocol):
    """The part of the recorder that is used here."""

    def graph(self, record: Graph, source: str | None) -> None: ...
    def provenance(self, record: Provenance) -> None: ...
    def replicated_parameters(self, record: ReplicatedParameters) -> None: ...
    def captured(self, module: Any) -> None: ...


class GraphChecks(Protocol):
    """Checks of what backends return."""

    def capture(self, output_graph: Any, module: Any) -> Any | None: ...
    def checked(self, graph: Any, compiled: Any) -> Any: ...
    def detach(self) -> None: ...


class PlainGraphs:
    """Puts hooks into the graphs that a backend returns unchanged, and lets `checks` wrap the others."""

    def __init__(self, sink: PlainGraphSink, numbers: Callable[[], int], checks: GraphChecks | None = None) -> None:
        """Create the hook; `numbers` returns the number of the next graph of the log."""
        self._sink, self._numbers, self._checks = sink, numbers, checks
        self.dynamo = DynamoGraphs()
        self._undo = ExitStack()
        self._swaps: list[code_swap.Swap] = []
        self._is_attached = False

    def attach(self) -> None:
        """Wrap Dynamo's call of backends; does nothing before Dynamo is imported, nor a second time."""
        module = compat.loaded(*CAPTURED)
        if module is None or self._is_attached:
            return
        self._is_attached = True
        owner = module.OutputGraph
        original = owner.call_user_compiler
        graphs = self

        def call_user_compiler(self: Any, gm: Any, *args: Any, **kwargs: Any) -> Any:
            graphs._on_captured(gm)
            checks = graphs._checks
            kept = checks.capture(self, gm) if checks is not None else None
            compiled = original(self, gm, *args, **kwargs)
            is_plain = graphs._on_compiled(compiled)
            if checks is None or kept is None or is_plain:
                return compiled
            return checks.checked(kept, compiled)

        owner.call_user_compiler = call_user_compiler
        self._undo.callback(setattr, owner, "call_user_compiler", original)

    def detach(self) -> None:
        self._undo.close()
        if self._checks is not None:
            self._checks.detach()
        while self._swaps:
            self._swaps.pop().restore()

    def _on_captured(self, module: Any) -> None:
        try:
            if self._is_attached:
                self.dynamo.take(compat.current_compile_id(), module)
        except Exception as error:
            self._sink.failed("captured graph", error)
        if self._is_attached:
            self._sink.captured(module)
        try:
            for record in replicated(module, compat.current_compile_id()) if self._is_attached else ():
                self._sink.replicated_parameters(record)
        except Exception as error:
            self._sink.failed("replicated parameters", error)

    def _on_compiled(self, compiled: Any) -> bool:
        """Put hooks into what a backend returned if it is the graph itself; return whether it is."""
        module = getattr(compiled, "__self__", compiled)
        try:
            is_plain = _is_plain(compiled, module)
            if self._is_attached and is_plain:
                self._instrument(module)
        except Exception as error:
            self._sink.failed("plain graph", error)
            return False
        return is_plain

    def _instrument(self, module: Any) -> None:
        from torch.fx._lazy_graph_module import _LazyGraphModule

        _LazyGraphModule.force_recompile(module)  # Dynamo would do it next
        code = module.code
        wrapper = analyse(code)
        number = self._numbers()
        compile_id = compat.current_compile_id()
        graph = Graph(
            graph=number,
            wrapper_key=hashlib.sha256(code.encode()).hexdigest(),
            compile_id=compile_id,
            aot_id=None,
            phase=None,
            cached=False,
            dynamic=True,
            functions=wrapper.functions,
            sites=wrapper.sites,
            memory=wrapper.memory,
        )
        shapes, places = code_swap.shapes(wrapper), storages_at_points(wrapper)
        hooks = launches.GraphHooks(self._sink, graph, frame_of(graph), shapes, points=places)
        path = type(module).forward.__code__.co_filename
        self._swaps.append(code_swap.swap(type(module), wrapper, path, hooks))
        self._sink.graph(graph, code)
        traces = {f"eager.{node.name}": [node.meta.get("stack_trace") or ""] for node in module.graph.nodes}
        self._sink.provenance(provenance.as_compiled(graph, traces, {}, path))


def _is_plain(compiled: Any, module: Any) -> bool:
    from torch.fx import GraphModule

    is_forward = compiled is module or getattr(compiled, "__name__", "") in ("forward", "_lazy_forward")
    return isinstance(module, GraphModule) and is_forward and isinstance(type(module).forward, FunctionType)


def analyse(code: str) -> WrapperSource:
    """Analyse the code of a graph module's `forward`. Raises SyntaxError."""
    result = WrapperSource(aot_id=None, functions=["forward"], tree=ast.parse(code))
    reader = _Reader(result)
    for function in result.tree.body:
        if isinstance(function, ast.FunctionDef):
            for statement in function.body:
                reader.statement(statement)
    return result


class _Reader:
    """Reads the statements of a `forward`, each of which is one operation, an alias, or drops names."""

    def __init__(self, result: WrapperSource) -> None:
        self.result = result

    def statement(self, statement: ast.stmt) -> None:
        if not isinstance(statement, ast.Assign):
            return
        value = statement.value
        names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
        if isinstance(value, ast.Constant):
            for name in names if value.value is None else ():
                self._memory("drop", name, statement)
        elif isinstance(value, ast.Name):
            self._memory("alias", names[0], statement, value.id)
        elif isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
            self._memory("item", names[0], statement, buffer_of(value))
        elif names:
            self._launch(statement, value, names[0])

    def _memory(self, event: MemoryEvent, name: str, statement: ast.stmt, of: str | None = None) -> None:
        found = MemoryStatement(event, name, "forward", statement.lineno, of)
        self.result.memory.append(found)
        self.result.events.setdefault(statement, []).append(found)

    def _launch(self, statement: ast.Assign, value: ast.expr, name: str) -> None:
        used = list(dict.fromkeys(n.id for n in ast.walk(value) if isinstance(n, ast.Name) and _is_local(n.id, value)))
        arguments = [Argument(text, "in", text) for text in used]
        site = LaunchSite(
            site=len(self.result.launches),
            function="forward",
            line=statement.lineno,
            kernel=_operation(value),
            kind="fallback",
            arguments=[*arguments, Argument(name, "out", name)],
            outputs=[name],
            handle=f"eager.{name}",
            source_nodes=[name],
        )
        expressions: list[ast.expr] = [ast.Name(text, ast.Load()) for text in used]
        launch = LaunchStatement(site, statement, expressions, [name])
        self.result.launches.append(launch)
        self.result.events.setdefault(statement, []).append(launch)


def _is_local(name: str, value: ast.expr) -> bool:
    """Return whether `name` is a variable, and not a module that contains an operation or the graph module itself."""
    roots = {dotted(n.func) or "" for n in ast.walk(value) if isinstance(n, ast.Call)}
    is_module = name in ("torch", "self", "device", "inf", "nan", "operator", "builtins", "math", "_operator")
    return not is_module and name not in roots and not name.startswith(("torch_", "_tensor_constant"))


def _operation(value: ast.expr) -> str:
    """Return the operation's name, such as ``torch.exp``, ``operator.add`` or ``Tensor.sum``."""
    if isinstance(value, ast.Call):
        name = dotted(value.func)
        if name is not None and name.startswith(("torch.", "self.", "operator.", "torch_")):
            return name
        return f"Tensor.{value.func.attr}" if isinstance(value.func, ast.Attribute) else name or "call"
    if isinstance(value, ast.Attribute):
        return f"Tensor.{value.attr}"
    operator = getattr(value, "op", None) or next(iter(getattr(value, "ops", ())), None)
    known = OPERATORS.get(type(operator).__name__)
    return f"operator.{known}" if known else type(value).__name__
