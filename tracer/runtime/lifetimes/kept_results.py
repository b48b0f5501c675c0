"""Finds results of earlier calls that the program keeps although they are one piece of memory, which each call of a
graph writes again: an input that the graph changes in place, such as a buffer of a module, and returns."""

from __future__ import annotations

import gc
from collections import Counter, defaultdict
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

LOOKS = 2, 8, 50, 500
"""The calls of a graph from which references are counted, or the next ones whose storages are followed."""
ROW = 10
"""Number of calls in a row in which they are: a list that a program fills and empties again may be short-lived."""
MOST_SEARCHES = 3
"""A search takes as long as a look at all objects of the process."""
LEAST_KEPT = 4
"""Number of references that must have been added from the one to the other, and that must be alike."""
MOST_INPUTS = 16
"""Maximum number of inputs, and of groups of tensors that are alike, for which containers are searched."""


class KeptResultsWatch:
    """Counts the references to the inputs that one graph writes. A search happens only if there are more and more."""

    def __init__(self, graph: int, sites: Sequence[LaunchSite], points: Sequence[PointStorages]) -> None:
        arguments = [argument for site in sites for argument in site.arguments if argument.role != "in"]
        written = {one.storage or one.buffer or one.name for one in arguments}
        inputs = {name for point in points if point.kind == "input" for name in point.names}
        self._graph, self._written = graph, written & inputs
        self._least: dict[str, tuple[int, int]] = {}
        """The least references to each input so far, or those at a search that found nothing."""
        self._looks = [*LOOKS] if self._written else []
        self._left = self._searches = self._now = 0
        """The calls of this row that are to come, the searches, and the call that it looked at last."""

    def wants(self, calls: int) -> bool:
        """Return whether it looks at the inputs of the call with this number, counted from 1."""
        if calls != self._now and (self._left or self._looks):
            if self._looks and calls >= self._looks[0]:
                self._looks = [one for one in self._looks if one > calls]
                self._left = ROW
            if self._left:
                self._left, self._now = self._left - 1, calls
        return calls == self._now

    def look(self, call: GraphCall, point: PointStorages, values: Sequence[Any]) -> Iterator[KeptResults]:
        """Count the references to the inputs of a call, and yield those of which the program keeps more and more than
        in another call that it looked at."""
        counted = [
            (name, value, counts)
            for name, value in zip(point.names, values, strict=True)
            if name in self._written and (counts := references(value)) is not None
        ]
        grown = [(name, value) for name, value, counts in counted if self._has_grown(name, counts)][:MOST_INPUTS]
        if grown:
            self._searches += 1
            if self._searches == MOST_SEARCHES:
                self._looks, self._left = [], 0
            with without_modes():
                found = _Search([value for _, value in grown]).run()
            for (name, _), (kept, holder) in zip(grown, found, strict=True):
                if kept >= LEAST_KEPT:
                    self._written.discard(name)
                    yield KeptResults(self._graph, call.number, call.step, name, kept, holder)

    def _has_grown(self, name: str, counts: tuple[int, int]) -> bool:
        before = self._least.get(name, counts)
        has_grown = any(now - then >= LEAST_KEPT for now, then in zip(counts, before, strict=True))
        self._least[name] = counts if has_grown else (min(counts[0], before[0]), min(counts[1], before[1]))
        return has_grown


class _Search:
    """One look through all objects for the tensors that show the same elements as each other, and for the containers
    that have several of them."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = values
        self._groups: list[list[Any]] = [[value] for value in values]
        """Tensors that are alike; the first ones are the values themselves."""
        self._of: list[int] = list(range(len(values)))
        """The position of the value to whose memory each group belongs."""

    def run(self) -> list[tuple[int, str | None]]:
        """Return for each value how many tensors are kept that are it or show the same elements of its memory, and the
        container that has most of them; None if no container has several."""
        self._add_views()
        most, containers = self._containers()
        places = _places([*{id(one): one for one in containers if one is not None}.values()])
        found: list[tuple[int, str | None]] = [(0, None)] * len(self._values)
        for of, group, count, container in zip(self._of, self._groups, most, containers, strict=True):
            is_held = count >= LEAST_KEPT
            kept = (count, places[id(container)]) if is_held else (len(group), None)
            found[of] = max(found[of], kept, key=lambda one: one[0])
        return found

    def _add_views(self) -> None:
        """Add the other tensors in the memory of the values, as far as enough of them show the same elements."""
        import torch

        kinds = torch.Tensor, torch.nn.Parameter
        memory = {id(value.untyped_storage()): position for position, value in enumerate(self._values)}
        own = {id(value) for value in self._values}
        shown: defaultdict[tuple[int, object], list[Any]] = defaultdict(list)
        for one in gc.get_objects():
            if type(one) not in kinds or id(one) in own:
                continue
            try:
                position = memory.get(id(one.untyped_storage()))
                if position is not None:
                    shown[position, (one.storage_offset(), one.size(), one.stride())].append(one)
            except (RuntimeError, NotImplementedError, AttributeError):  # sparse, functional: no storage of its own
                continue
        alike = sorted((group for group in shown.items() if len(group[1]) >= LEAST_KEPT), key=lambda one: -len(one[1]))
        for (position, _), group in alike[:MOST_INPUTS]:
            self._groups.append(group)
            self._of.append(position)

    def _containers(self) -> tuple[list[int], list[Any]]:
        """Return for each group the largest number of its tensors in one container, and this container."""
        group_of = {id(one): number for number, group in enumerate(self._groups) for one in group}
        looked_for = [one for group in self._groups for one in group[:LEAST_KEPT]]
        ours = {id(looked_for), id(self._values), *map(id, self._groups)}
        most, best = [0] * len(self._groups), [None] * len(self._groups)
        for container in gc.get_referrers(*looked_for):
            if id(container) in ours or not is_container(container):
                continue
            elements = list(container.values()) if isinstance(container, dict) else list(container)
            for number, count in Counter(group_of[id(one)] for one in elements if id(one) in group_of).items():
                if count > most[number]:
                    most[number], best[number] = count, container if count >= LEAST_KEPT else None
        return most, best


def _places(containers: Sequence[Any]) -> dict[int, str]:
    """Describe containers, each with the variable or the attribute that it is, by their `id`."""
    modules, places = module_dicts(), locals_by_identity()[0]
    found = {id(one): list(places.get(id(one), ())) for one in containers}
    for referrer in gc.get_referrers(*containers):
        if (is_container(referrer) and id(referrer) not in modules) or isinstance(referrer, FrameType | CellType):
            continue
        for one in [one for one in gc.get_referents(referrer) if id(one) in found]:
            if id(referrer) in modules:
                names = [name for name, value in [*referrer.items()] if value is one]
                found[id(one)] += [f"{name} of {modules[id(referrer)]}" for name in names]
            else:
                found[id(one)].append(attribute_words(referrer, one))
    held = {id(one): min(found[id(one)], key=len, default="") for one in containers}
    return {id(one): " in ".join(filter(None, (container_words(one), held[id(one)]))) for one in containers}
