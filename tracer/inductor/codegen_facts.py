"""Collects what only code generation knows: the scheduler's memory estimate, and the nodes that each launch computes.

Inductor names the nodes of every kernel before its call (torch/_inductor/debug.py,
`set_kernel_post_grad_provenance_tracing`; C++ kernels are named when their group is flushed, where
`Scheduler.current_node` is another node); scatter and index_put fallbacks pass through `writeline` only.
The facts are saved beside the compile cache under the wrapper's key, so that warm runs have them too.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from typing import Any

import orjson

from stepscope.tracer.inductor import autotuning, compat
from stepscope.tracer.inductor.judge_record.capture import JudgeTap
from stepscope.tracer.inductor.scheduler.recompute_check import Mismatches
from stepscope.tracer.inductor.scheduler.scheduler_memory import from_payload, scheduler_memory
from stepscope.tracer.inductor.sidecars import sidecar_path, write_file
from stepscope.tracer.inductor.sources.dynamo_graphs import CompiledLines, DynamoGraphs
from stepscope.tracer.inductor.sources.fx_nodes import module_paths, recomputed_region, source_nodes
from stepscope.tracer.judge.record import GraphRecord
from stepscope.tracer.schema.graphs import LaunchSite
from stepscope.tracer.schema.memory import SchedulerMemory
from stepscope.tracer.schema.tuning import Autotuned

TRACING = "set_kernel_post_grad_provenance_tracing"
USERS = ("torch._inductor.debug", "torch._inductor.codegen.cpp", "torch._inductor.codegen.triton")
FALLBACK_LINES = ("ScatterFallbackLine", "IndexPutFallbackLine")
SIDECAR_VERSION = 2


@dataclass(frozen=True)
class LaunchFacts:
    kernel: str
    handle: str | None
    snodes: list[str]
    fx_nodes: list[str]
    modules: list[str] = field(default_factory=list)
    """Paths of nn modules, such as ``Sequential.2 (GELU)``; empty in files of older versions."""
    source_nodes: list[str] = field(default_factory=list)
    aten: list[str] = field(default_factory=list)
    recomputed: dict[str, int] = field(default_factory=dict)
    """Checkpointed regions by the buffers that it computes again; empty in files of older versions."""
    stack: str = ""
    """The stack trace of the operator that is called as it is, where Inductor may name that of another node, such as
    what reads its result; empty for other launches, and in files of older versions."""


@dataclass
class CodegenFacts:
    """The facts about one wrapper."""

    launches: list[LaunchFacts] = field(default_factory=list)
    memory: list[SchedulerMemory] = field(default_factory=list)
    """Estimates for the graph and its subgraphs, without the graph's number."""
    memory_problem: str | None = None
    """Reason why an estimate is missing; None if none is."""
    mismatches: list[Mismatches] = field(default_factory=list)
    """Mismatches found in reordering passes; a warm run, which does not reorder, has none."""
    lines: CompiledLines | None = None
    """None if the graph that Dynamo captured was not seen, or in files of older versions."""
    autotuned: list[Autotuned] = field(default_factory=list)
    """What the autotuner measured, without the graph's number."""
    judge: list[GraphRecord] = field(default_factory=list)
    """What the judge needs of the graph and its subgraphs; it has a file of its own, which only the judge reads."""


class _Thread(threading.local):
    def __init__(self) -> None:
        self.facts: CodegenFacts | None = None


class CodegenTap:
    """Collects the facts about the wrapper that each thread is generating."""

    def __init__(
        self,
        on_failure: Callable[[str, BaseException], None],
        take_mismatches: Callable[[Any], Mismatches],
        dynamo: DynamoGraphs,
    ) -> None:
        self._on_failure, self._take_mismatches, self._dynamo = on_failure, take_mismatches, dynamo
        self._thread = _Thread()
        self._judge = JudgeTap(on_failure)
        self._autotuning = autotuning.AutotuneTap(on_failure)
        self._undo = ExitStack()
        self._attached = False

    def attach(self) -> None:
        from torch._inductor.codegen.wrapper import PythonWrapperCodegen
        from torch._inductor.scheduler import Scheduler

        self._attached = True
        import_module(USERS[0])  # those imported later get the wrapped function from it
        for name in USERS:
            module = sys.modules.get(name)
            if module is not None and hasattr(module, TRACING):
                self._wrap(module, TRACING, self._tracing)
        self._wrap(PythonWrapperCodegen, "writeline", self._writeline)
        self._wrap(Scheduler, "codegen", self._codegen)
        self._judge.attach(self._undo)
        self._autotuning.attach(self._undo)

    def detach(self) -> None:
        """Restore the originals. A module imported meanwhile may keep a wrapped function, which observes nothing."""
        self._attached = False
        self._undo.close()

    def take(self) -> CodegenFacts | None:
        """Return the facts collected on this thread since the last call, or None if no scheduler ran."""
        facts, self._thread.facts = self._thread.facts, None
        return facts

    def _wrap(self, owner: Any, name: str, observe: Callable[..., None]) -> None:
        original = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            try:
                result = original(*args, **kwargs)
            except BaseException:
                self._thread.facts = None
                raise
            if not self._attached:
                return result
            try:
                observe(result, *args, **kwargs)
            except Exception as error:
                self._on_failure(f"codegen {name}", error)
            return result

        setattr(owner, name, wrapped)
        self._undo.callback(setattr, owner, name, original)

    def _codegen(self, result: Any, scheduler: Any, *args: Any, **kwargs: Any) -> None:
        from torch._inductor.virtualized import V

        if V.graph.cpp_wrapper:  # there are no Python launches to relate an estimate to
            return
        facts = self._facts()
        captured = self._dynamo.of(compat.current_compile_id())
        facts.lines = captured.to_keep() if captured else None
        facts.mismatches.append(self._take_mismatches(V.graph))
        try:
            memory = scheduler_memory(scheduler)
            facts.memory.insert(0 if memory.subgraph is None else len(facts.memory), memory)
        except Exception as error:
            facts.memory_problem = f"{type(error).__name__}: {error}"
        facts.autotuned += self._autotuning.take(V.graph, [part.node for part in _parts(scheduler.nodes)])
        record = self._judge.take(V.graph)
        if record is not None:
            facts.judge.append(record)

    def _tracing(self, result: Any, nodes: Any, kernel: str, *args: Any, **kwargs: Any) -> None:
        from torch._inductor import debug

        handle = f"{kernel}:{result}" if result is not None else None
        fx_nodes = debug._inductor_triton_kernel_to_post_grad_node_info.get(handle or "", [])
        snodes, origins = _computed(nodes)
        self._add(kernel, handle, snodes, list(fx_nodes), origins, _recomputed(nodes), _stack_of_operator(nodes))

    def _writeline(self, result: Any, wrapper: Any, line: Any, *args: Any, **kwargs: Any) -> None:
        if type(line).__name__ in FALLBACK_LINES:
            node = line.node
            kernel = getattr(node, "python_kernel_name", None) or node.get_kernel_name()
            origins = list(getattr(node, "origins", ()))
            names = [origin.name for origin in origins]
            self._add(kernel, None, [node.get_operation_name()], names, origins)

    def _add(
        self,
        kernel: str,
        handle: str | None,
        snodes: list[str],
        fx_nodes: list[str],
        origins: list[Any],
        again: dict[str, int] | None = None,
        stack: str = "",
    ) -> None:
        nodes, operators = source_nodes(origins)
        modules = module_paths(origins)
        fact = LaunchFacts(kernel, handle, snodes, fx_nodes, modules, nodes, operators, again or {}, stack)
        self._facts().launches.append(fact)

    def _facts(self) -> CodegenFacts:
        if self._thread.facts is None:
            self._thread.facts = CodegenFacts()
        return self._thread.facts


def _computed(nodes: Any) -> tuple[list[str], list[Any]]:
    """Return the names of scheduler nodes, and the FX nodes that they come from."""
    if hasattr(nodes, "get_operation_name"):
        return [nodes.get_operation_name()], list(getattr(nodes, "origins", ()))
    parts = _parts(nodes)
    origins = [origin for part in parts for origin in getattr(part.node, "origins", ())]
    return [part.get_name() for part in parts], origins


def _stack_of_operator(node: Any) -> str:
    operator = getattr(node, "op_overload", None)
    own = [one for one in getattr(node, "origins", ()) if one.target is operator] if operator is not None else []
    return own[0].meta.get("stack_trace") or "" if len(own) == 1 else ""


def _recomputed(nodes: Any) -> dict[str, int]:
    """Return the checkpointed region of each buffer with an activation that a backward graph computes again."""
    from torch._inductor.virtualized import V

    if not V.graph.is_backward:
        return {}
    made = [nodes] if hasattr(nodes, "get_operation_name") else [part.node for part in _parts(nodes)]
    named = [buffer for buffer in made if hasattr(buffer, "get_name") and hasattr(buffer, "get_origin_node")]
    regions = {buffer.get_name(): recomputed_region(buffer.get_origin_node()) for buffer in named}
    return {name: region for name, region in regions.items() if region is not None}


def _parts(nodes: Any) -> list[Any]:
    """Return the scheduler nodes of a group."""
    return [part for node in nodes if hasattr(node, "get_nodes") for part in node.get_nodes()]


def match(sites: list[LaunchSite], facts: list[LaunchFacts]) -> tuple[list[LaunchSite], dict[str, LaunchFacts]]:
    """Return `sites` with their scheduler nodes, source nodes and operators, and the facts by debug handle.

    A site is matched by its debug handle; without one, by the kernel's name and the ordinal among its launches.
    """
    by_handle = {fact.handle: fact for fact in facts if fact.handle}
    unnamed: dict[str, list[LaunchFacts]] = {}
    for fact in facts:
        if not fact.handle:
            unnamed.setdefault(fact.kernel, []).append(fact)
    taken: Counter[str] = Counter()
    matched = []
    for site in sites:
        found = by_handle.get(site.handle or "")
        candidates = unnamed.get(site.kernel, [])
        if found is None and site.handle is None and taken[site.kernel] < len(candidates):
            found = candidates[taken[site.kernel]]
            taken[site.kernel] += 1
        if found is not None:  # C++ kernels have no comment in the wrapper that names their nodes and operators
            nodes, operators = site.source_nodes or found.source_nodes, site.aten or found.aten
            site = replace(site, snodes=found.snodes, source_nodes=nodes, aten=operators)
        matched.append(site)
    return matched, by_handle


def write_sidecar(key: str, facts: CodegenFacts) -> None:
    """Save `facts` for warm runs. Raises OSError."""
    content = {
        "version": SIDECAR_VERSION,
        "launches": [asdict(fact) for fact in facts.launches],
        "memory": [asdict(memory) for memory in facts.memory],
        "memory_problem": facts.memory_problem,
        "lines": asdict(facts.lines) if facts.lines else None,
        "autotuned": [asdict(record) for record in facts.autotuned],
    }
    write_file(sidecar_path(key), orjson.dumps(content))


def read_sidecar(key: str) -> CodegenFacts | None:
    """Return the facts saved under `key`, or None if there are none that can be read."""
    try:
        content = orjson.loads(sidecar_path(key).read_bytes())
        if content["version"] != SIDECAR_VERSION:
            return None
        return CodegenFacts(
            [LaunchFacts(**entry) for entry in content["launches"]],
            [from_payload(entry) for entry in content["memory"]],
            content["memory_problem"],
            lines=CompiledLines(**content["lines"]) if content.get("lines") else None,
            autotuned=[autotuning.from_payload(entry) for entry in content.get("autotuned", ())],
        )
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return None
