"""Finds results of earlier calls that the program keeps although they are one piece of memory, which each call of a
graph writes again: an input that the graph changes in place, such as a buffer of a module, and returns."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterator, Sequence
from types import CellType, FrameType
from typing import Any

from stepscope.tracer.inductor.compat import without_modes
from stepscope.tracer.inductor.tensor_owners import references
from stepscope.tracer.runtime.calls import GraphCall
from stepscope.tracer.runtime.lifetimes.referrers import (
    attribute_words,
    container_words,
    is_container,
    locals_by_identity,
    module_dicts,
)
from stepscope.tracer.schema.graphs import LaunchSite
from stepscope.tracer.schema.memory import KeptResults
from stepscope.tracer.wrapper.parsed import PointStorages

FIRST_LOOK, SECOND_LOOK = 3, 8
"""The calls of a graph in which references are counted."""
LEAST_KEPT = 4
"""Number of references that must have been added from the one to the other, and that must be alike."""


class KeptResultsWatch:
    """Counts the references to the inputs that one graph writes. A search happens only if there are more and more."""

    def __init__(self, graph: int, sites: Sequence[LaunchSite], points: Sequence[PointStorages]) -> None:
        arguments = [argument for site in sites for argument in site.arguments if argument.role != "in"]
        written = {one.storage or one.buffer or one.name for one in arguments}
        inputs = {name for point in points if point.kind == "input" for name in point.names}
        self._graph, self._written = graph, written & inputs
        self._first: dict[str, tuple[int, int]] = {}

    def wants(self, calls: int) -> bool:
        """Return whether it looks at the inputs of the call with this number, counted from 1."""
        return bool(self._written) and calls in (FIRST_LOOK, SECOND_LOOK)

    def look(self, calls: int, call: GraphCall, point: PointStorages, values: Sequence[Any]) -> Iterator[KeptResults]:
        """Count the references to the inputs of a call, and yield those of which the program keeps more and more."""
        for name, value in zip(point.names, values, strict=True):
            counts = references(value) if name in self._written else None
            if counts is not None and calls == FIRST_LOOK:
                self._first[name] = counts
            elif counts is not None and name in self._first:
                before = self._first[name]
                if any(now - then >= LEAST_KEPT for now, then in zip(counts, before, strict=True)):
                    yield from self._found(call, name, value)

    def _found(self, call: GraphCall, name: str, value: Any) -> Iterator[KeptResults]:
        with without_modes():
            kept = [_kept(alike) for alike in ([value], *_views(value))]
        most, holder = max(kept, key=lambda one: one[0])
        if most >= LEAST_KEPT:
            yield KeptResults(self._graph, call.number, call.step, name, most, holder or None)


def _views(value: Any) -> list[list[Any]]:
    """Return the other tensors in the memory of `value`, those that show the same elements together."""
    import torch

    kinds, storage = (torch.Tensor, torch.nn.Parameter), value.untyped_storage()
    tensors = [one for one in gc.get_objects() if type(one) in kinds and one is not value]
    shown: defaultdict[object, list[Any]] = defaultdict(list)
    for one in tensors:
        if one.layout == torch.strided and one.device == value.device and one.untyped_storage() is storage:
            shown[one.storage_offset(), one.size(), one.stride()].append(one)
    return list(shown.values())


def _kept(alike: Sequence[Any]) -> tuple[int, str]:
    """Return how many elements of one container are among the given tensors, and where this container is; else the
    number of the tensors, if no container has as many."""
    wanted = {id(one) for one in alike}
    most, best = 0, None
    for container in filter(is_container, gc.get_referrers(*alike)):
        elements = list(container.values()) if isinstance(container, dict) else list(container)
        count = sum(id(one) in wanted for one in elements)
        if count > most and container is not alike:
            most, best = count, container
    return max((most, _place(best) if best is not None else ""), (len(alike), ""))


def _place(container: Any) -> str:
    """Describe a container and the variable or the attribute that it is."""
    own, modules, places = container_words(container), module_dicts(), locals_by_identity()[0]
    found = list(places.get(id(container), ()))
    for referrer in gc.get_referrers(container):
        if id(referrer) in modules:
            found += [f"{name} of {modules[id(referrer)]}" for name, one in [*referrer.items()] if one is container]
        elif not is_container(referrer) and not isinstance(referrer, FrameType | CellType):
            found.append(attribute_words(referrer, container))
    return f"{own} in {min(found, key=len)}" if found else own
