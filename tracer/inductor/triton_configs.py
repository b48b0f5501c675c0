"""With which block sizes, warps and stages the Triton kernels of loaded wrappers run.

The launchers of a kernel (`CachingAutotuner.launchers`, torch/_inductor/runtime/triton_heuristics.py) are the
candidates that autotuning times at its first launch; the one it chooses is left.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from stepscope.tracer.schema.records import Graph, TunedKernels

_LATER = ("coordinate_descent_tuning", "found_by_coordesc"), ("combo_tuning_groups", "found_by_combo_autotune")
"""What goes on from the only candidate at the first launch, and the mark of what it found."""


class TritonConfigs:
    """Looks which kernels have one configuration now. Any thread may add; one at a time takes."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, weakref.ref[ModuleType], set[str]]] = []
        """Graph, its module, and its kernels that are not told of yet."""

    def add(self, graph: Graph, module: ModuleType) -> None:
        kernels = {site.kernel for site in graph.sites if site.kind in ("triton", "user_triton")}
        if kernels:
            self._waiting.append((graph.graph, weakref.ref(module), kernels))

    def take(self) -> Iterator[TunedKernels]:
        """Of each graph what is known since the last time."""
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
    """The configuration that a Triton kernel of Inductor's runs with; empty: it is not settled, or holds what is no
    number."""
    try:
        (launcher,) = kernel.launchers
        config, meta = launcher.config, getattr(kernel, "inductor_meta", {})
        if any(meta.get(asked) and not getattr(config, done, False) for asked, done in _LATER):
            return {}
        found = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    except (AttributeError, TypeError, ValueError):
        return {}
    return found if all(type(value) is int for value in found.values()) else {}
