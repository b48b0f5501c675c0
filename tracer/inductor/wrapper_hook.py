"""Instruments wrapper modules as `PyCodeCache.load_by_key_path` loads them, on cold and on warm caches.

Every wrapper that Inductor loads passes through it (torch/_inductor/codecache.py), in any thread; it also loads
Triton kernels and templates, which have no `call`.
"""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from stepscope.tracer.inductor import code_swap, codegen_facts, compat
from stepscope.tracer.inductor.cpp_wrapper.code import PackageHook
from stepscope.tracer.inductor.judge_record import sidecar as judge_sidecar
from stepscope.tracer.inductor.operators import operator_schema
from stepscope.tracer.inductor.read_plans import PlanSink, read_plan
from stepscope.tracer.inductor.scheduler.recompute_check import MOST_RECORDS, Mismatches, RecomputeCheck
from stepscope.tracer.inductor.sources import provenance
from stepscope.tracer.inductor.sources.dynamo_graphs import Captured, CompiledLines, DynamoGraphs
from stepscope.tracer.inductor.triton_configs import TritonConfigs
from stepscope.tracer.inductor.unrecorded import is_hidden
from stepscope.tracer.judge.plan import plans_of
from stepscope.tracer.judge.record import RECORD_VERSION
from stepscope.tracer.runtime import launches, ticks
from stepscope.tracer.runtime.red_zones import RedZones
from stepscope.tracer.schema.constants import CACHED_ESTIMATE, CPP_WRAPPER
from stepscope.tracer.schema.gaps import Skipped
from stepscope.tracer.schema.graphs import CppCode, Graph, Provenance
from stepscope.tracer.schema.launches import TunedKernels
from stepscope.tracer.schema.memory import RecomputeMismatch, SchedulerMemory
from stepscope.tracer.schema.tuning import Autotuned
from stepscope.tracer.wrapper.expectations import expected_lifetimes
from stepscope.tracer.wrapper.parsed import WrapperSource
from stepscope.tracer.wrapper.read_points import ReadPoint
from stepscope.tracer.wrapper.source import analyse
from stepscope.tracer.wrapper.storage_points import storages_at_points
from stepscope.tracer.wrapper.versions import follow

if TYPE_CHECKING:
    from stepscope.tracer.config import TraceConfig

JUDGED_TAG = f"stepscope-judge-{RECORD_VERSION}"
"""Part of cache keys while a run is judged, so that no graph comes from a cache without what the judge needs."""
COMPILED_UNSEEN = "the graph came from a cache and was compiled without stepscope"
NO_ZONES = "the graph runs in a CUDA graph, whose memory PyTorch keeps account of"
UNKNOWN_STATEMENTS = 20


class WrapperSink(launches.CallSink, PlanSink, Protocol):
    """The part of the recorder that this hook and the hooks in wrappers need."""

    red_zones: RedZones

    def graph(self, record: Graph, source: str | None) -> None: ...
    def provenance(self, record: Provenance) -> None: ...
    def tuned(self, record: TunedKernels) -> None: ...
    def autotuned(self, record: Autotuned) -> None: ...
    def cpp_code(self, record: CppCode) -> None: ...
    def scheduled(self, record: SchedulerMemory) -> None: ...
    def recompute_mismatch(self, record: RecomputeMismatch) -> None: ...


@dataclass
class _Instrumented:
    """An instrumented wrapper, and what is needed to replace its hooks."""

    module: weakref.ref[ModuleType]
    path: str
    digest: str
    hooks: launches.GraphHooks


@dataclass
class _Waiting:
    """A loaded graph whose stack traces torch has not logged yet."""

    graph: Graph
    facts: dict[str, codegen_facts.LaunchFacts]
    path: str
    captured: Captured | None
    compiled: CompiledLines | None

    def provenance(self, traces: dict[str, list[str]]) -> Provenance:
        if self.graph.cached is False:
            return provenance.as_compiled(self.graph, traces, self.facts, self.path)
        return provenance.from_cache(self.graph, traces, self.facts, self.path, self.captured, self.compiled)


class WrapperHook:
    """Instruments wrapper modules as they are loaded, and those that were loaded before."""

    def __init__(self, sink: WrapperSink, config: TraceConfig, numbers: Iterator[int], dynamo: DynamoGraphs) -> None:
        """Create the hook; `numbers` yields the number of the next graph of the log."""
        self._sink, self._config, self._numbers, self._dynamo = sink, config, numbers, dynamo
        self._instrumented: list[_Instrumented] = []
        self._lock = threading.RLock()  # one thread may load a wrapper while another changes the configuration
        self._is_detached = False
        self._recompute = RecomputeCheck(config.check_recompute, sink.failed)
        self._codegen = codegen_facts.CodegenTap(sink.failed, self._recompute.take, dynamo)
        self._packages = PackageHook(sink.cpp_code, sink.failed, self._codegen)
        self._swaps: list[code_swap.Swap] = []
        self._seen: weakref.WeakSet[ModuleType] = weakref.WeakSet()
        self._configs = TritonConfigs()
        self._waiting: dict[int, list[_Waiting]] = {}
        self._undo = ExitStack()

    def attach(self) -> None:
        from torch._inductor import codecache

        if self._config.provenance:
            self._undo.enter_context(
                compat.default_setting("torch._inductor.config", "trace.provenance_tracking_level", 1)
            )
        if self._config.judge != "off":
            self._undo.enter_context(compat.tagged_cache_key(JUDGED_TAG))
        self._codegen.attach()
        self._undo.callback(self._codegen.detach)
        self._packages.attach(self._undo)
        self._attach_recompute()
        cache = codecache.PyCodeCache
        original = cache.__dict__["load_by_key_path"]
        hook = self

        def load_by_key_path(cls: Any, key: str, path: str, *args: Any, **kwargs: Any) -> ModuleType:
            try:
                module: ModuleType = original.__func__(cls, key, path, *args, **kwargs)
            except BaseException:
                hook._report_mismatches(hook._codegen.take(), None)  # else the next module would get them
                raise
            hook.on_load(module, key, path, from_cache=False)
            return module

        setattr(cache, "load_by_key_path", classmethod(load_by_key_path))  # noqa: B010 - mypy rejects assigning to a method
        self._undo.callback(setattr, cache, "load_by_key_path", original)
        for module in list(cache.modules):
            path = getattr(module, "__file__", None)
            if path:
                self.on_load(module, Path(path).stem, path, from_cache=True)

    def tell_tuned(self) -> None:
        """Record the configurations that autotuning has chosen since the last call."""
        for record in self._configs.take():
            self._sink.tuned(record)

    def _attach_recompute(self) -> None:
        why = self._recompute.attach()
        self._undo.callback(self._recompute.detach)
        if why is not None and self._config.check_recompute:
            self._sink.skipped(Skipped("recompute check", why))

    def configure(self, config: TraceConfig) -> None:
        """Read tensors as `config` says from now on; running calls finish with the previous configuration."""
        with self._lock:
            if not self._is_detached:
                self._config = config
                self._swap_again()

    def _swap_again(self) -> None:
        alive = [(entry, module) for entry in self._instrumented if (module := entry.module()) is not None]
        self._instrumented = [entry for entry, _ in alive]
        for entry, module in alive:
            try:
                text = Path(entry.path).read_bytes()
                if _digest(text) != entry.digest:
                    raise OSError(f"{entry.path} is not the file that was loaded")
                wrapper = analyse(text.decode(), operator_schema)
                points = self._plan(wrapper, entry.hooks)
                self._plan_judge(wrapper, entry.hooks, Path(entry.path).stem, None)
                plan = len(entry.hooks.plans) - 1
                code_swap.swap(module, wrapper, entry.path, entry.hooks, points, plan, entry.hooks.judged)
            except Exception as error:
                self._sink.failed("configure", error)

    def _plan(self, wrapper: WrapperSource, hooks: launches.GraphHooks) -> list[ReadPoint]:
        """Return the points to read at, and add the plan to the hooks. A failure here loses values, not launches."""
        try:
            points, plan = read_plan(wrapper, self._config, self._sink)
        except Exception as error:
            self._sink.failed("values", error)
            points, plan = [], None
        hooks.plans.append(plan)
        return points

    def _plan_judge(
        self, wrapper: WrapperSource, hooks: launches.GraphHooks, key: str, facts: codegen_facts.CodegenFacts | None
    ) -> None:
        """Make the plans by which calls are judged, which name statements of `wrapper`.

        A failure here loses verdicts, not launches.
        """
        hooks.judged = ()
        if self._sink.judge.is_on:
            try:
                records = facts.judge if facts is not None and facts.judge else judge_sidecar.read(key)
            except (OSError, ValueError):
                records = []
            try:
                hooks.judged = plans_of(wrapper, records, hooks.snodes)
            except Exception as error:
                self._sink.failed("judge", error)

    def _plan_red_zones(self, wrapper: WrapperSource, hooks: launches.GraphHooks, graph: int) -> None:
        if self._config.red_zones and wrapper.is_cuda and compat.uses_cuda_graphs():
            self._sink.skipped(Skipped("red zones", NO_ZONES, graph))
        elif self._config.red_zones:
            hooks.red_zones = self._sink.red_zones

    def after_fork(self) -> None:
        """Replace the lock in a forked child, where the thread that has acquired it may not exist."""
        self._lock = threading.RLock()

    def detach(self) -> None:
        """Remove every hook; the original code objects run again."""
        self._undo.close()
        with self._lock:
            self._is_detached = True
        self._report_lost(everything=True)
        for waiting in self._waiting.values():
            for entry in waiting:  # torch has not logged their traces
                self._sink.provenance(entry.provenance({}))
        self._waiting.clear()
        while self._swaps:
            self._swaps.pop().restore()

    def on_load(self, module: ModuleType, key: str, path: str, *, from_cache: bool) -> None:
        """Instrument a loaded module if it is a wrapper. Never raises."""
        try:
            if callable(getattr(module, "call", None)) and not is_hidden():
                with self._lock:  # a thread that loads the same module must not run it before it is instrumented
                    self._on_wrapper(module, key, path, from_cache)
        except Exception as error:
            self._sink.failed("load", error)

    def _on_wrapper(self, module: ModuleType, key: str, path: str, from_cache: bool) -> None:
        if self._is_detached or module in self._seen:
            return
        self._seen.add(module)
        source = Path(path).read_text(encoding="utf-8")
        if _is_wrapper(source):
            self._instrument(module, key, path, source, from_cache)

    def on_stack_traces(self, traces: dict[str, list[str]]) -> None:
        """Record the provenance of a graph that this thread has loaded, from the stack traces that torch has logged."""
        waiting = self._waiting.get(threading.get_ident(), [])
        for entry in waiting:
            handles = {site.handle for site in entry.graph.sites if site.handle}
            if handles & traces.keys() or not traces:
                waiting.remove(entry)
                self._sink.provenance(entry.provenance(traces))
                return

    def _instrument(self, module: ModuleType, key: str, path: str, source: str, from_cache: bool) -> None:
        number = next(self._numbers)
        facts = self._codegen.take()
        try:
            wrapper = analyse(source, operator_schema)
        except SyntaxError as error:
            self._report(_unseen(number, key, from_cache, f"the wrapper cannot be parsed: {error}"), source)
            return
        cached = None if from_cache else facts is None
        if facts is None:
            facts = codegen_facts.read_sidecar(key)
        else:
            self._keep(key, facts, number)
        if wrapper.cpp_wrapper:
            self._report(replace(_unseen(number, key, from_cache, CPP_WRAPPER), aot_id=wrapper.aot_id), source)
            self._packages.tell(source, facts)
            return
        sites, matched = codegen_facts.match(follow(wrapper).sites, facts.launches if facts else [])
        graph = Graph(
            graph=number,
            wrapper_key=key,
            compile_id=None if from_cache else compat.current_compile_id(),
            aot_id=wrapper.aot_id,
            phase=_phase(wrapper.aot_id),
            cached=cached,
            dynamic=wrapper.dynamic,
            functions=[name.split(".")[-1] for name in wrapper.functions],
            sites=sites,
            memory=wrapper.memory,
            symbols=wrapper.symbols,
            matmul_precision=compat.matmul_precision(),
        )
        whole = [memory for memory in facts.memory if memory.subgraph is None] if facts else []
        expected = expected_lifetimes(wrapper, sites, whole[0] if whole else None)
        hooks = launches.GraphHooks(
            self._sink, graph, frame_of(graph), code_swap.shapes(wrapper), _capture_check(wrapper),
            storages_at_points(wrapper), expected, ticks.tick_type(), compat.backward_check(),
        )  # fmt: skip
        self._plan_red_zones(wrapper, hooks, number)
        try:
            with self._lock:
                points = self._plan(wrapper, hooks)
                self._plan_judge(wrapper, hooks, key, facts)
                plan = len(hooks.plans) - 1
                self._swaps.append(code_swap.swap(module, wrapper, path, hooks, points, plan, hooks.judged))
                self._instrumented.append(_Instrumented(weakref.ref(module), path, _digest(source.encode()), hooks))
        except (code_swap.SwapError, ValueError, SyntaxError) as error:
            self._report(replace(graph, sites=[], not_recorded=f"the hooks do not fit: {error}"), source)
            self._report_facts(facts, number)
            return
        self._sink.graph(graph, source if from_cache else None)
        self._configs.add(graph, module)
        self._report_facts(facts, number)
        self._report_unknown(wrapper, number)
        captured = self._dynamo.of(graph.compile_id)
        entry = _Waiting(graph, matched, path, captured, facts.lines if facts else None)
        if from_cache or not any(site.handle for site in sites):
            self._sink.provenance(entry.provenance({}))
        else:
            self._waiting.setdefault(threading.get_ident(), []).append(entry)

    def _report_facts(self, facts: codegen_facts.CodegenFacts | None, number: int) -> None:
        for memory in facts.memory if facts else []:
            self._sink.scheduled(replace(memory, graph=number))
        if facts is None:
            self._sink.skipped(Skipped(CACHED_ESTIMATE, COMPILED_UNSEEN, number))
        elif facts.memory_problem is not None:
            self._sink.skipped(Skipped("estimated memory", facts.memory_problem, number))
        for record in facts.autotuned if facts else []:
            self._sink.autotuned(replace(record, graph=number))
        self._report_mismatches(facts, number)

    def _report_mismatches(self, facts: codegen_facts.CodegenFacts | None, number: int | None) -> None:
        for found in facts.mismatches if facts else []:
            self._report_found(found, number)
        self._report_lost()

    def _report_lost(self, everything: bool = False) -> None:
        for found in self._recompute.take_lost(everything):
            self._report_found(found, None)

    def _report_found(self, found: Mismatches, number: int | None) -> None:
        for record in found.records:
            self._sink.recompute_mismatch(replace(record, graph=number))
        if found.dropped:
            why = f"{found.dropped} more; the first {MOST_RECORDS} of a graph are recorded"
            self._sink.skipped(Skipped("recompute mismatches", why, number))

    def _keep(self, key: str, facts: codegen_facts.CodegenFacts, number: int) -> None:
        try:
            codegen_facts.write_sidecar(key, facts)
            if facts.judge:
                judge_sidecar.write(key, facts.judge)
        except OSError as error:
            self._sink.skipped(Skipped("scheduler nodes on warm runs", f"{error}", number))

    def _report(self, graph: Graph, source: str) -> None:
        self._sink.graph(graph, source)
        self._sink.skipped(Skipped("launches", graph.not_recorded or "", graph.graph))

    def _report_unknown(self, wrapper: WrapperSource, number: int) -> None:
        for text in wrapper.unknown[:UNKNOWN_STATEMENTS]:
            self._sink.skipped(Skipped("a statement of the wrapper", f"its form is not known: {text}", number))


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _is_wrapper(source: str) -> bool:
    return source.startswith("# AOT ID:") or "async_compile.wait(globals())" in source or "inductor_entry" in source


def _unseen(number: int, key: str, from_cache: bool, why: str) -> Graph:
    compile_id = None if from_cache else compat.current_compile_id()
    return Graph(number, key, compile_id, None, None, None, False, [], [], [], why)


def _phase(aot_id: str | None) -> Any:
    phase = (aot_id or "").rpartition("_")[2]
    return phase if phase in ("forward", "backward", "inference") else None


def frame_of(graph: Graph) -> object:
    """Return an identity that repeats from step to step: the Dynamo frame if it is known, else the graph."""
    return graph.compile_id.rpartition("/")[0] if graph.compile_id else ("graph", graph.graph)


def _capture_check(wrapper: WrapperSource) -> Callable[[], bool] | None:
    if not wrapper.is_cuda:
        return None
    import torch

    return torch.cuda.is_current_stream_capturing
