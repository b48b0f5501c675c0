"""Records the graph that Inductor lowers, and where its values end up, while it generates code.

Everything is read: `GraphLowering.run` and `run_node` return what they returned before. A graph is described before it
is lowered, since lowering changes it; the places are read after the scheduler has generated code, when all buffers have
names.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from stepscope.tracer.inductor.judge_record import places
from stepscope.tracer.inductor.judge_record.convolutions import parts_of_convolution
from stepscope.tracer.inductor.judge_record.means import parts_of_mean
from stepscope.tracer.inductor.judge_record.nodes import plain_nodes
from stepscope.tracer.judge.record import Constant, GraphRecord, Node, Place


class _Lowered:
    """What is known of a graph while it is lowered."""

    def __init__(self, nodes: list[Node], constants: dict[str, Constant]) -> None:
        self.nodes, self.constants = nodes, constants
        self.results: dict[str, Any] = {}


class JudgeTap:
    """Observes `GraphLowering` in all threads."""

    def __init__(self, on_failure: Callable[[str, BaseException], None]) -> None:
        self._on_failure = on_failure
        self._graphs: weakref.WeakKeyDictionary[Any, _Lowered] = weakref.WeakKeyDictionary()

    def attach(self, undo: ExitStack) -> None:
        """Wrap the methods of `GraphLowering`; `undo` restores them."""
        from torch._inductor.graph import GraphLowering

        run, run_node = GraphLowering.run, GraphLowering.run_node
        tap = self

        def observed_run(graph: Any, *args: Any, **kwargs: Any) -> Any:
            tap._begin(graph)
            return run(graph, *args, **kwargs)

        def observed_run_node(graph: Any, node: Any) -> Any:
            result = run_node(graph, node)
            lowered = tap._graphs.get(graph)
            if lowered is not None:
                lowered.results[node.name] = result
            return result

        for name, function in (("run", observed_run), ("run_node", observed_run_node)):
            undo.callback(setattr, GraphLowering, name, getattr(GraphLowering, name))
            setattr(GraphLowering, name, function)

    def take(self, graph: Any) -> GraphRecord | None:
        """Return the record of a graph whose code was just generated, or None if its lowering was not seen."""
        lowered = self._graphs.pop(graph, None)
        if lowered is None:
            return None
        found = {name: place for name, one in lowered.results.items() if (place := places.place_of(one)) is not None}
        described, parts = _split(graph, lowered.nodes, found)
        found |= parts
        nodes = {node.name: node for node in described}
        also = list(places.further_places(graph, nodes, found))
        for node in described:
            place = found.get(node.name)
            own = graph.qualify_name(node.name)
            if node.kind == "input" and place is not None and place.buffer != own and node.stride is not None:
                also.append((node.name, place))  # the input was replaced by a copy
                found[node.name] = Place(own, node.size, node.stride, 0)
        numbers = ((name, places.symbol_of(one)) for name, one in lowered.results.items() if name not in found)

        def is_written(place: Place) -> bool:
            """Return whether a kernel stores the value, which it keeps to itself if nothing else reads it."""
            return place.buffer not in graph.removed_buffers and place.buffer not in graph.inplaced_to_remove

        outputs = {
            node.get_name(): [buffer.get_name() for buffer in node.get_outputs()]
            for fused in graph.scheduler.nodes
            for node in fused.get_nodes()
        }
        return GraphRecord(
            graph.name,
            described,
            {name: place for name, place in found.items() if is_written(place)},
            {name: symbol for name, symbol in numbers if symbol is not None},
            [(name, place) for name, place in also if is_written(place)],
            places.buffers_of(graph),
            places.parts_of(graph),
            outputs,
            lowered.constants,
        )

    def _begin(self, graph: Any) -> None:
        try:
            self._graphs[graph] = _Lowered(*plain_nodes(graph.module))
        except Exception as error:
            self._on_failure("judge record", error)


def _split(graph: Any, nodes: list[Node], found: Mapping[str, Place]) -> tuple[list[Node], dict[str, Place]]:
    """Return the nodes, with several for one of which a buffer holds a part, and the places of these parts."""
    by_name = {node.name: node for node in nodes}
    taken = {place.buffer for place in found.values()}
    parts: dict[str, list[Node]] = {}
    held: dict[str, Place] = {}
    for buffer in graph.buffers:
        own = parts_of_mean(buffer, by_name) or parts_of_convolution(buffer, by_name)
        place = places.place_of(buffer) if own and buffer.get_name() not in taken else None
        if place is not None and place.size == own[-1].size:
            parts[own[-1].name] = own
            held[own[0].name] = place
    return [part for node in nodes for part in parts.get(node.name, [node])], held
