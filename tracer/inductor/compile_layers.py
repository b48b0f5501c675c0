"""Keeps the graphs between Dynamo and the kernels, and lets a compiled call run one of them instead of its kernels.

All layers run behind the same entry of AOTAutograd, so that two of them differ in one thing only. Nothing is compiled a
second time. Seams: `fx_codegen_and_compile`, `_recursive_joint_graph_passes` and `_recursive_post_grad_passes` in
torch/_inductor/compile_fx.py, which are looked up in that module at each call.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.fx import GraphModule, Interpreter

from stepscope.tracer.inductor import compat
from stepscope.tracer.inductor.captured_graph import copied
from stepscope.tracer.inductor.unrecorded import hidden

Layer = Literal["aot", "joint", "post_grad"]


@dataclass
class InnerGraphs:
    """The graphs of one forward, backward or inference."""

    aot: GraphModule | None = None
    """As AOTAutograd made it; None for training, whose joint graph has other inputs."""
    joint: GraphModule | None = None
    """After the joint-graph passes, and for training after the partition into forward and backward."""
    post_grad: GraphModule | None = None
    """After the post-grad passes, as it is lowered; None if no such pass ran."""
    whole: tuple[GraphModule, GraphModule] | None = None
    """In training, the graph of forward and backward together before and after the joint-graph passes; the forward has
    it."""

    def of(self, layer: Layer) -> GraphModule | None:
        graph: GraphModule | None = getattr(self, layer)
        return graph


class LayerMissing(Exception):
    """Raised if the graph of a layer was not kept, or cannot run in eager mode; its text is a clause."""


class _Switch(threading.local):
    """What compiled calls of this thread run."""

    layer: Layer | None = None
    ran: list[InnerGraphs] | None = None


class _Compiling(threading.local):
    """What the compile of this thread has met."""

    depth = 0
    before_joint: GraphModule | None = None
    after_joint: GraphModule | None = None
    current: InnerGraphs | None = None


_switch = _Switch()


@contextmanager
def running(layer: Layer) -> Iterator[list[InnerGraphs]]:
    """Let compiled calls of this thread run the graphs of `layer`; yield the list of those that ran."""
    _switch.layer, _switch.ran = layer, []
    try:
        yield _switch.ran
    finally:
        _switch.layer, _switch.ran = None, None


@contextmanager
def keeping_graphs(failed: Callable[[str, BaseException], None]) -> Iterator[None]:
    """Keep the graphs of what is compiled meanwhile; nothing of it is recorded."""
    layers = CompileLayers(failed)
    with hidden():
        try:
            layers.attach()
            yield
        finally:
            layers.detach()


class CompileLayers:
    """Hooks in Inductor's compiler. Caches are off meanwhile, since the graphs of a cached compile are gone."""

    def __init__(self, failed: Callable[[str, BaseException], None]) -> None:
        self._failed = failed
        self._compiling = _Compiling()
        self._undo = ExitStack()
        self._is_attached = False

    def attach(self) -> None:
        if self._is_attached:
            return
        self._is_attached = True
        from torch._inductor import compile_fx

        self._undo.enter_context(compat.default_setting("torch.compiler.config", "force_disable_caches", 1))
        self._wrap(compile_fx, "_recursive_joint_graph_passes", self._joint)
        self._wrap(compile_fx, "_recursive_post_grad_passes", self._post_grad)
        self._wrap(compile_fx, "fx_codegen_and_compile", self._inner)

    def detach(self) -> None:
        self._undo.close()
        self._is_attached = False

    def _wrap(self, module: Any, name: str, around: Callable[..., Any]) -> None:
        original = getattr(module, name)

        @functools.wraps(original)
        def wrapped(graph: Any, *args: Any, **kwargs: Any) -> Any:
            return around(original, graph, *args, **kwargs)

        setattr(module, name, wrapped)
        self._undo.callback(setattr, module, name, original)

    def _joint(self, original: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
        is_outermost = self._compiling.depth == 0
        if is_outermost:
            self._compiling.before_joint = self._kept(graph)
        result = self._deeper(original, graph, *args, **kwargs)
        if is_outermost:
            self._compiling.after_joint = self._kept(result)
        return result

    def _post_grad(self, original: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
        result = self._deeper(original, graph, *args, **kwargs)
        current = self._compiling.current
        if self._compiling.depth == 0 and current is not None:
            current.post_grad = self._kept(graph)
        return result

    def _deeper(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        self._compiling.depth += 1
        try:
            return original(*args, **kwargs)
        finally:
            self._compiling.depth -= 1

    def _inner(self, original: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
        before, after = self._compiling.before_joint, self._compiling.after_joint
        self._compiling.before_joint = self._compiling.after_joint = None
        graphs = InnerGraphs(joint=self._kept(graph))
        if kwargs.get("is_inference"):
            graphs.aot = before
        elif before is not None and after is not None:
            graphs.whole = before, after
        depth, outer = self._compiling.depth, self._compiling.current
        self._compiling.depth, self._compiling.current = 0, graphs
        try:
            result = original(graph, *args, **kwargs)
        finally:
            self._compiling.depth, self._compiling.current = depth, outer
        if callable(getattr(result, "current_callable", None)):
            result.current_callable = _switching(result.current_callable, graphs)
        return result

    def _kept(self, graph: Any) -> GraphModule | None:
        try:
            return copied(graph)
        except Exception as error:
            self._failed("graphs between layers", error)
            return None


def _switching(kernels: Callable[..., Any], graphs: InnerGraphs) -> Callable[..., Any]:
    @functools.wraps(kernels)
    def run(inputs: Any) -> Any:
        if _switch.layer is None or _switch.ran is None:
            return kernels(inputs)
        graph = graphs.of(_switch.layer)
        if graph is None:
            raise LayerMissing("its graph was not kept")
        _switch.ran.append(graphs)
        args = list(inputs)
        if isinstance(inputs, list):
            inputs.clear()  # the caller gives its references away
        with torch.no_grad():
            result = _Eager(graph).run(*args)
        return list(result) if isinstance(result, tuple | list) else result

    return run


class _Eager(Interpreter):
    """Runs graphs that are no valid eager programs: operators that change arguments may have lost their results."""

    def run_node(self, n: Any) -> Any:
        result = super().run_node(n)
        if result is None and n.op == "call_function" and n.users:
            schema = getattr(n.target, "_schema", None)
            arguments = schema.arguments if schema is not None else []
            changed = [one for one in arguments if one.alias_info and one.alias_info.is_write]
            if changed:
                args, kwargs = self.fetch_args_kwargs_from_env(n)
                bound = dict(zip((one.name for one in arguments), args, strict=False)) | dict(kwargs)
                return bound.get(changed[0].name)
        return result
