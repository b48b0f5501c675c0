"""Compares the memory that a reordering pass carries along with a full recomputation, and records the mismatches.

torch/_inductor/comms.py moves collectives and waits one swap at a time and keeps the expected memory up to date.
With `config_comms.reorder_iterative_debug_memory_recompute`, torch/_inductor/comms_debug.py compares it after each
swap, prints, and stops the pass at the first difference. While attached, this module compares instead. If requested
without torch's flag, the check runs as well and never stops a pass: only comms.py sees the flag as set, because the
flag is part of the key of the compile cache. The check takes one estimate of all nodes per swap. A graph from a cache
is not reordered, so there is nothing to compare.
"""

from __future__ import annotations

import builtins
import inspect
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple

from stepscope.tracer.inductor import compat
from stepscope.tracer.inductor.scheduler.scheduler_memory import at_peak, buffers, estimate
from stepscope.tracer.schema.memory import RecomputeMismatch, RecomputeReason, SwappedNode

CHECK = "_debug_iterative_memory_recompute"
FLAG = "reorder_iterative_debug_memory_recompute"
SINK_PASS = "sink_waits_iterative"
MOST_RECORDS = 16
"""Maximum number of records per graph; further mismatches are counted."""


class _Swap(NamedTuple):
    """The arguments that comms.py passes to the check."""

    candidate: Any
    group: list[Any]
    snodes: list[Any]
    freeable: Mapping[str, Any]
    outputs: Any
    base_peak: int
    carried: Mapping[Any, tuple[int, int]]
    allocfree: Mapping[Any, Any]
    """Bytes that each node allocates and frees, according to the pass."""
    last_uses: Mapping[Any, list[Any]]
    """Node of the group -> buffers that it used last before the swap, and the candidate after it; in the pass that
    sinks waits, the other way round."""
    pass_name: str


class _Verdict(NamedTuple):
    reasons: list[RecomputeReason]
    snodes: list[str]
    """Name of the node of each reason; empty for the peak."""
    allowed_peak: int
    is_explained: bool


@dataclass
class Mismatches:
    """The mismatches of one graph."""

    records: list[RecomputeMismatch] = field(default_factory=list)
    dropped: int = 0
    """Number of further mismatches, which are not recorded."""


class _Thread(threading.local):
    """The pass that runs on a thread, identified by the dictionary that it carries along."""

    carried: object = None
    """Id of the pass's dictionary and a weak reference to one of its nodes, so that the graph is not kept alive."""
    swaps = 0
    is_quiet = False

    def __init__(self) -> None:
        self.known: dict[str, tuple[int, int]] = {}


class _Settings:
    """`config_comms` with the flag on, which only comms.py sees."""

    def __init__(self, settings: Any) -> None:
        vars(self)["_settings"] = settings

    def __getattr__(self, name: str) -> Any:
        return True if name == FLAG else getattr(vars(self)["_settings"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(vars(self)["_settings"], name, value)


class RecomputeCheck:
    """Replaces torch's check; with `is_asked` it also runs when torch's own flag is off."""

    def __init__(self, is_asked: bool, on_failure: Callable[[str, BaseException], None]) -> None:
        self._is_asked, self._on_failure = is_asked, on_failure
        self._thread = _Thread()
        self._found: dict[int, tuple[weakref.ref[Any], Mismatches]] = {}
        self._lock = threading.Lock()
        self._undo = ExitStack()

    def attach(self) -> str | None:
        """Replace torch's check. Return why this torch cannot be checked, or None if it can."""
        try:
            comms, comms_debug = (import_module(f"torch._inductor.{name}") for name in ("comms", "comms_debug"))
        except ImportError as error:
            return str(error)
        if not hasattr(comms_debug, CHECK) or not hasattr(getattr(comms, "config_comms", None), FLAG):
            return "this version of torch has no such check"
        self._replace(comms_debug, CHECK, self._checking(getattr(comms_debug, CHECK), comms.config_comms))
        vars(comms_debug)["print"] = self._print
        self._undo.callback(vars(comms_debug).pop, "print", None)
        if self._is_asked:
            self._replace(comms, "config_comms", _Settings(comms.config_comms))
        return None

    def detach(self) -> None:
        self._undo.close()

    def take(self, graph: Any) -> Mismatches:
        """Return the mismatches found while `graph`, a GraphLowering, was scheduled."""
        self._thread.carried = None
        with self._lock:
            entry = self._found.pop(id(graph), None)
        return entry[1] if entry is not None and entry[0]() is graph else Mismatches()

    def take_lost(self, everything: bool = False) -> list[Mismatches]:
        """Return the mismatches of graphs whose compile failed, which nobody took; all if `everything` is set."""
        with self._lock:
            lost = [key for key, (graph, _) in self._found.items() if everything or graph() is None]
            return [self._found.pop(key)[1] for key in lost]

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        self._undo.callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, value)

    def _checking(self, original: Callable[..., bool], settings: Any) -> Callable[..., bool]:
        signature = inspect.signature(original)

        def check(*args: Any, **kwargs: Any) -> bool:
            is_torchs = bool(getattr(settings, FLAG))
            is_quiet = False
            try:
                given = signature.bind(*args, **kwargs).arguments
                self._compare(_swap(given), settings, is_torchs)
                is_quiet = True
            except Exception as error:
                self._on_failure("recompute check", error)
            if not is_torchs:
                return False
            self._thread.is_quiet = is_quiet
            try:
                return original(*args, **kwargs)
            finally:
                self._thread.is_quiet = False

        return check

    def _print(self, *values: Any, **options: Any) -> None:
        """Print unless torch reports a recorded mismatch; its report takes 22 KB for 16 nodes."""
        if not self._thread.is_quiet:
            builtins.print(*values, **options)  # noqa: T201

    def _compare(self, swap: _Swap, settings: Any, is_torchs: bool) -> None:
        from torch._inductor.memory import estimate_peak_memory_allocfree

        thread = self._thread
        which = (id(swap.carried), weakref.ref(next(iter(swap.carried), thread)))
        if thread.carried != which:
            thread.carried, thread.swaps, thread.known = which, 0, {}
        number = thread.swaps
        thread.swaps += 1
        peak, current, _, _ = estimate_peak_memory_allocfree(swap.snodes, dict(swap.freeable), swap.outputs)
        off = _differences(swap, current)
        known, thread.known = thread.known, off
        verdict = _judge(swap, peak, off, settings, is_torchs)
        # A difference persists after its swap: without torch's flag the pass continues, so it is recorded once.
        is_new = is_torchs or not off or any(known.get(name) != difference for name, difference in off.items())
        if verdict.reasons and is_new:
            self._keep(swap, number, verdict, is_torchs)

    def _keep(self, swap: _Swap, number: int, verdict: _Verdict, is_torchs: bool) -> None:
        from torch._inductor.virtualized import V

        graph = V.graph
        with self._lock:
            entry = self._found.get(id(graph))
            if entry is None or entry[0]() is not graph:
                entry = self._found[id(graph)] = (weakref.ref(graph), Mismatches())
        if len(entry[1].records) < MOST_RECORDS:
            entry[1].records.append(_record(swap, number, verdict, graph, is_torchs))
        else:
            entry[1].dropped += 1


def _swap(given: Mapping[str, Any]) -> _Swap:
    return _Swap(
        candidate=given["candidate"],
        group=list(given["gns"]),
        snodes=list(given["snodes"]),
        freeable=given["name_to_freeable_input_buf"],
        outputs=given["graph_outputs"],
        base_peak=given["peak_memory"],
        carried=given["iter_curr_memory"],
        allocfree=given.get("snodes_allocfree") or {},
        last_uses=given.get("gn_to_bufs_last_use") or {},
        pass_name=given["tlparse_name"],
    )


def _differences(swap: _Swap, current: Sequence[tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Return carried minus recomputed bytes, after allocations and after frees, for each node where they differ."""
    found = {}
    for node, (alloc, free) in zip(swap.snodes, current, strict=True):
        carried_alloc, carried_free = swap.carried[node]
        if (carried_alloc, carried_free) != (alloc, free):
            found[node.get_name()] = (carried_alloc - alloc, carried_free - free)
    return found


def _judge(swap: _Swap, peak: int, off: Mapping[str, Any], settings: Any, is_torchs: bool) -> _Verdict:
    kind = "sink" if swap.pass_name == SINK_PASS else "reorder"
    budget = getattr(settings, f"{kind}_iterative_peak_memory_budget")
    carried_peak = max(swap.carried[node][0] for node in swap.snodes)
    is_wrong = peak != carried_peak or peak - swap.base_peak > swap.base_peak * budget
    named: list[tuple[RecomputeReason, str]] = []
    if is_wrong or (is_torchs and peak > swap.base_peak):  # torch ignores the budget of the pass
        named.append(("peak", ""))
    if swap.candidate.get_name() in off:
        named.append(("candidate", swap.candidate.get_name()))
    named += [("group", node.get_name()) for node in swap.group if node.get_name() in off]
    return _Verdict(
        reasons=[reason for reason, _ in named],
        snodes=[name for _, name in named],
        allowed_peak=int(swap.base_peak * (1 + budget)),
        is_explained=len(named) == 1 and named[0][0] == "peak" and not is_wrong and not off,
    )


def _record(swap: _Swap, number: int, verdict: _Verdict, graph: Any, is_torchs: bool) -> RecomputeMismatch:
    found = estimate(swap.snodes, swap.freeable, swap.outputs)
    before = _before(swap)
    peaks = at_peak(found)
    names = [node.get_name() for node in swap.snodes]
    first_peak = names[peaks[0]] if peaks else ""
    has_changes = all(node in swap.allocfree for node in swap.snodes)
    last_uses = _last_uses(swap)
    return RecomputeMismatch(
        pass_name=swap.pass_name,
        swap=number,
        candidate=swap.candidate.get_name(),
        group=[node.get_name() for node in swap.group],
        reasons=verdict.reasons,
        reason_snode=[name or first_peak for name in verdict.snodes],
        peak_before_bytes=int(swap.base_peak),
        peak_after_bytes=found.peak,
        allowed_peak_bytes=verdict.allowed_peak,
        is_explained=verdict.is_explained,
        peak_snodes=peaks,
        snode=names,
        carried_after_alloc_bytes=[int(swap.carried[node][0]) for node in swap.snodes],
        carried_after_free_bytes=[int(swap.carried[node][1]) for node in swap.snodes],
        recomputed_after_alloc_bytes=found.after_alloc,
        recomputed_after_free_bytes=found.after_free,
        before_after_alloc_bytes=[before.get(node, (None, None))[0] for node in swap.snodes],
        before_after_free_bytes=[before.get(node, (None, None))[1] for node in swap.snodes],
        buffers=buffers(found, swap.freeable, swap.outputs, graph.removed_buffers),
        found_by="torch" if is_torchs else "stepscope",
        subgraph=graph.name,
        compile_id=compat.current_compile_id(),
        swapped=[_swapped_node(node) for node in (swap.candidate, *swap.group)],
        carried_alloc_bytes=[int(swap.allocfree[node].size_alloc) for node in swap.snodes] if has_changes else [],
        carried_free_bytes=[int(swap.allocfree[node].size_free) for node in swap.snodes] if has_changes else [],
        recomputed_alloc_bytes=found.alloc,
        recomputed_free_bytes=found.free,
        last_use_buffer=[buffer for buffer, _, _ in last_uses],
        last_use_before=[before for _, before, _ in last_uses],
        last_use_after=[after for _, _, after in last_uses],
    )


def _last_uses(swap: _Swap) -> list[tuple[str, str, str]]:
    """Return (buffer, its last user before the swap, its last user after the swap), according to the pass."""
    candidate = swap.candidate.get_name()
    found = []
    for node in swap.group:
        name = node.get_name()
        before, after = (candidate, name) if swap.pass_name == SINK_PASS else (name, candidate)
        found += [(str(buffer.get_name()), before, after) for buffer in swap.last_uses.get(node) or ()]
    return found


def _before(swap: _Swap) -> dict[Any, tuple[int, int]]:
    """Return the nodes' bytes recomputed in the order before the swap; empty if that order is unknown."""
    order = _order_before(swap.snodes, swap.candidate, swap.group)
    if order is None:
        return {}
    found = estimate(order, swap.freeable, swap.outputs)
    return dict(zip(order, zip(found.after_alloc, found.after_free, strict=True), strict=True))


def _order_before(snodes: list[Any], candidate: Any, group: list[Any]) -> list[Any] | None:
    """Return the order before the swap, which moved the candidate across the group; None if it is unknown."""
    at, size = snodes.index(candidate), len(group)
    if at >= size and snodes[at - size : at] == group:
        return [*snodes[: at - size], candidate, *group, *snodes[at + 1 :]]
    if snodes[at + 1 : at + 1 + size] == group:
        return [*snodes[:at], *group, candidate, *snodes[at + 1 + size :]]
    return None


def _swapped_node(node: Any) -> SwappedNode:
    """Describe a node of the scheduler by what it computes, reads and writes, so that a reader can identify it."""
    parts = [part.node for part in node.get_nodes() if part.node is not None]
    origins = [origin for part in parts for origin in getattr(part, "origins", ())]
    calls = (origin for origin in origins if getattr(origin, "op", None) == "call_function")
    kernels = (getattr(part, "python_kernel_name", None) for part in parts)
    reads = (one.name for one in node.read_writes.reads if type(one).__name__ != "WeakDep")  # WeakDep only orders nodes
    return SwappedNode(
        name=node.get_name(),
        node_kind=type(node).__name__,
        kernels=_once(kernel for kernel in kernels if kernel),
        operators=_once(str(call.target) for call in calls),
        fx_nodes=_once(origin.name for origin in origins),
        reads=_once(reads),
        writes=_once(buffer.get_name() for buffer in node.get_outputs()),
    )


def _once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
