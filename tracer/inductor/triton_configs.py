"""With which block sizes, warps and stages the Triton kernels of loaded wrappers run.

The launchers of a kernel (`CachingAutotuner.launchers`, torch/_inductor/runtime/triton_heuristics.py) are the
candidates that autotuning times at its first launch; the one it chooses is left.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from tracer.records import Graph, TunedKernels


class TritonConfigs:
    """Looks which kernels have one configuration now. The caller holds a lock."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, weakref.ref[ModuleType], set[str]]] = []
        """Graph, its module, and its kernels that are not told of yet."""

    def add(self, graph: Graph, module: ModuleType) -> None:
        kernels = {site.kernel for site in graph.sites if site.kind in ("triton", "user_triton")}
        if kernels:
            self._waiting.append((graph.graph, weakref.ref(module), kernels))

    def take(self) -> Iterator[TunedKernels]:
        """Of each graph what is known since the last time."""
        waiting, self._waiting = self._waiting, []
        for graph, reference, kernels in waiting:
            module = reference()
            if module is None:
                continue
            found = {name: config for name in sorted(kernels) if (config := config_of(getattr(module, name, None)))}
            if found:
                yield TunedKernels(graph, list(found), list(found.values()))
            if left := kernels - found.keys():
                self._waiting.append((graph, reference, left))


def config_of(kernel: Any) -> dict[str, int]:
    """The only configuration of a Triton kernel of Inductor's; empty: there are several, or none yet."""
    launchers: Sequence[Any] = getattr(kernel, "launchers", None) or []
    if len(launchers) != 1:
        return {}
    config = launchers[0].config
    pairs = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    return {name: value for name, value in pairs.items() if type(value) is int}
