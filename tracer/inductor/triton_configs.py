"""Finds the block sizes, warps and stages that the Triton kernels of loaded wrappers run with.

The launchers of a kernel (`CachingAutotuner.launchers`, torch/_inductor/runtime/triton_heuristics.py) are the
candidates that autotuning times at its first launch; then only the chosen one remains.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from stepscope.tracer.schema.graphs import Graph
from stepscope.tracer.schema.launches import TunedKernels

_LATER = ("coordinate_descent_tuning", "found_by_coordesc"), ("combo_tuning_groups", "found_by_combo_autotune")
"""Settings of tuning that starts from the only candidate at the first launch, each with the flag of its result."""


class TritonConfigs:
    """Finds kernels whose configuration is settled. Any thread may call `add`, one thread at a time `take`."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, weakref.ref[ModuleType], set[str]]] = []
        """Number of each graph, its module, and its kernels whose configuration was not returned yet."""

    def add(self, graph: Graph, module: ModuleType) -> None:
        kernels = {site.kernel for site in graph.sites if site.kind in ("triton", "user_triton")}
        if kernels:
            self._waiting.append((graph.graph, weakref.ref(module), kernels))

    def take(self) -> Iterator[TunedKernels]:
        """Yield, per graph, the configurations that were settled since the last call."""
        waiting, left = self._waiting[:], []
        for graph, reference, kernels in waiting:
            module = reference()
            if module is None:
                continue
            found = {name: config for name in sorted(kernels) if (config := config_of(getattr(module, name, None)))}
            if found:
                yield TunedKernels(graph, list(found), list(found.values()))
            if kernels - found.keys():
                left.append((graph, reference, kernels - found.keys()))
        self._waiting[: len(waiting)] = left


def config_of(kernel: Any) -> dict[str, int]:
    """Return the configuration of a Triton kernel of Inductor's; empty if it is not settled or not all integers."""
    try:
        (launcher,) = kernel.launchers
        config, meta = launcher.config, getattr(kernel, "inductor_meta", {})
        if any(meta.get(asked) and not getattr(config, done, False) for asked, done in _LATER):
            return {}
        found = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    except (AttributeError, TypeError, ValueError):
        return {}
    return found if all(type(value) is int for value in found.values()) else {}
