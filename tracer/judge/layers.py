"""Finds the layer of a compile in which a wrong result appears (`stepscope run --judge-layers`)."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from stepscope.tracer.inductor.compile_layers import InnerGraphs, Layer, LayerMissing, lines_of, running
from stepscope.tracer.judge.clones import NotComparable
from stepscope.tracer.judge.comparison import Side
from stepscope.tracer.schema.layer_checks import LayerStep, TensorDifference

INNER: tuple[Layer, ...] = ("aot", "joint", "post_grad")
MOST_LINES = 60
MILD = frozenset(("strides", "requires_grad"))
"""Differences that layers may have among each other, since the kernels are the first to fix strides."""

Compare = Callable[[Side, Side], tuple[list[TensorDifference], list[TensorDifference]]]
"""Returns what differs, and in what only the first side is far from float64."""


@dataclass
class Found:
    """The layers that were compared, in order, up to the first that differs."""

    steps: list[LayerStep] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    """The change of the graph in that layer, as lines of a unified diff."""


def first_difference(first: Side, last: Side, run: Callable[[], Side], compare: Compare) -> Found:
    """Compare the layers between Dynamo's graph, which gave `first`, and the kernels, which gave `last`.

    `run` calls the compiled graph on fresh copies; it runs the graph of the layer that is switched on.
    """
    found = Found()
    name, side, graph = "dynamo", first, None
    for layer in INNER:
        try:
            with running(layer) as ran:
                result = run()
        except (LayerMissing, NotComparable) as reason:
            if str(reason) != "its graph was not kept":
                found.steps.append(LayerStep(name, layer, "not_compared", str(reason)))
            continue
        except Exception as error:
            text = f"the graph raised {type(error).__name__} in eager mode"
            found.steps.append(LayerStep(name, layer, "not_compared", text))
            continue
        if not ran:  # the backward ran in another thread, or what ran came from a cache
            found.steps.append(LayerStep(name, layer, "not_compared", "its graph did not run"))
            continue
        next_graph = ran[-1]
        if _step(found, name, layer, compare(side, result)):
            found.nodes = _changed(graph, next_graph, layer)
            return found
        name, side, graph = layer, result, next_graph
    _step(found, name, "compiled", compare(side, last))
    return found


def _step(
    found: Found, before: str, after: str, compared: tuple[Sequence[TensorDifference], Sequence[TensorDifference]]
) -> bool:
    """Add a step; return whether its layers differ."""
    wrong, off = ([one for one in differences if one.what not in MILD] for differences in compared)
    told = [*wrong, *off]
    verdict: Any = "differs" if wrong else "eager_is_off" if off else "agrees"
    text = "; ".join(f"{one.name}: {one.text}" for one in told[:4])
    found.steps.append(LayerStep(before, after, verdict, text))
    return bool(told)


def _changed(before: InnerGraphs | None, after: InnerGraphs, layer: Layer) -> list[str]:
    """Return what a pass changed; for the first graph that was kept, the graph itself."""
    new = after.of(layer)
    earlier = INNER[: INNER.index(layer)]
    old = next((graph for one in reversed(earlier) if (graph := after.of(one)) is not None), None)
    if new is None:
        return []
    if old is None or before is None:
        return lines_of(new)[:MOST_LINES]
    diff = difflib.unified_diff(lines_of(old), lines_of(new), "before", "after", n=2, lineterm="")
    return list(diff)[:MOST_LINES]
