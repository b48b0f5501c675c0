"""Computes the memory that Inductor's scheduler expects, with torch/_inductor/memory.py, in the final order of nodes.

This runs after `Scheduler.codegen` has generated the code, so that it cannot change the code. The functions of
memory.py set `mpi_buffer` and `mpi_node` of buffers and nodes, which nothing reads any more by then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from stepscope.tracer.schema.memory import ScheduledBuffers, SchedulerMemory

NOT_NUMBERED = -1
"""Value of `SchedulerMemory.graph` until the wrapper is loaded and the graph gets its number."""


class Estimate(NamedTuple):
    """The estimate of torch/_inductor/memory.py for one order of nodes, in bytes; lists have one value per node."""

    peak: int
    after_alloc: list[int]
    after_free: list[int]
    alloc: list[int]
    free: list[int]
    timeline: list[Any]
    """One `BufferInfo` per buffer."""


def scheduler_memory(scheduler: Any) -> SchedulerMemory:
    """Return the expected memory of `V.graph`, whose `scheduler` has just generated its code.

    Raises whatever torch raises; AttributeError or ImportError if a version of torch lacks something.
    """
    from torch._inductor import memory
    from torch._inductor.virtualized import V
    from torch.utils._ordered_set import OrderedSet

    graph = V.graph
    nodes = [node for node in scheduler.nodes if not _is_memory_check(node)]
    outputs = OrderedSet(graph.get_output_names())
    _, freeable = memory.prepare_planning_info(
        nodes, scheduler.name_to_buf, scheduler.name_to_fused_node, OrderedSet(graph.graph_inputs), outputs
    )
    found = estimate(nodes, freeable, outputs)
    base = dict(_base(graph, freeable))
    return SchedulerMemory(
        graph=NOT_NUMBERED,
        subgraph=graph.name,
        snode=[node.get_name() for node in nodes],
        members=[[part.get_name() for part in node.get_nodes()] for node in nodes],
        node_kind=[type(node).__name__ for node in nodes],
        alloc_bytes=found.alloc,
        free_bytes=found.free,
        after_alloc_bytes=found.after_alloc,
        after_free_bytes=found.after_free,
        buffers=buffers(found, freeable, outputs, graph.removed_buffers),
        peak_bytes=found.peak,
        peak_snodes=at_peak(found),
        base_name=list(base),
        base_bytes=list(base.values()),
    )


def estimate(nodes: Sequence[Any], freeable: Mapping[str, Any], outputs: Collection[str]) -> Estimate:
    """Return torch's estimate for `nodes` in this order; their planning information must be prepared."""
    from torch._inductor import memory

    peak, current, changes, _ = memory.estimate_peak_memory_allocfree(nodes, freeable, outputs)  # type: ignore[arg-type]
    timeline, _, _ = memory.compute_memory_timeline(nodes, freeable, outputs)  # type: ignore[arg-type]
    return Estimate(
        peak=int(peak),
        after_alloc=[int(alloc) for alloc, _ in current],
        after_free=[int(free) for _, free in current],
        alloc=[int(changes[node].size_alloc) for node in nodes],
        free=[int(changes[node].size_free) for node in nodes],
        timeline=timeline,
    )


def at_peak(found: Estimate) -> list[int]:
    """Return the index of every node at the peak."""
    return [index for index, live in enumerate(found.after_alloc) if live == found.peak]


def buffers(
    found: Estimate, freeable: Mapping[str, Any], outputs: Collection[str], removed: Collection[str]
) -> ScheduledBuffers:
    """Return the buffers of the estimate; `removed` are the names of buffers that fusion has eliminated."""
    names = [str(entry.buffer.get_name()) for entry in found.timeline]

    def role(name: str) -> Any:
        if name in freeable:
            return "input"
        if name in removed:
            return "removed"
        return "output" if name in outputs else "temporary"

    return ScheduledBuffers(
        name=names,
        alloc_bytes=[int(entry.size_alloc) for entry in found.timeline],
        free_bytes=[int(entry.size_free) for entry in found.timeline],
        first_snode=[int(entry.start_step) for entry in found.timeline],
        last_snode=[int(entry.end_step) for entry in found.timeline],
        role=[role(name) for name in names],
    )


def from_payload(payload: dict[str, Any]) -> SchedulerMemory:
    """Build the memory from the values of `asdict`. Raises KeyError or TypeError if they are of another version."""
    return SchedulerMemory(**{**payload, "buffers": ScheduledBuffers(**payload["buffers"])})


def _is_memory_check(node: Any) -> bool:
    """Return whether `config.test_configs.track_memory_lifecycle` has inserted `node`, as it does after every node."""
    return type(getattr(node, "node", None)).__name__ == "MemoryCheckKernel"


def _base(graph: Any, freeable: Collection[str]) -> Iterator[tuple[str, int]]:
    """Yield the inputs that the graph may not free, and the constants (frozen weights), with their bytes."""
    for name, value in graph.graph_inputs.items():
        if name not in freeable and hasattr(value, "get_numel") and (size := _input_bytes(graph, value)) is not None:
            yield name, size
    for name, tensor in graph.constants.items():
        yield name, tensor.numel() * tensor.element_size()


def _input_bytes(graph: Any, value: Any) -> int | None:
    """Return the size of an input in bytes; None if it is not a tensor (a generator's state, a TorchBind object)."""
    from torch._inductor.utils import get_dtype_size

    try:
        numel, dtype = value.get_numel(), value.get_dtype()
    except (AttributeError, NotImplementedError):
        return None
    return int(graph.sizevars.optimization_hint(numel, fallback=0)) * int(get_dtype_size(dtype))
