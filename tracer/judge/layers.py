"""Finds the layer of a compile in which a wrong result appears (`stepscope run --judge-layers`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from stepscope.tracer.inductor import numeric_settings
from stepscope.tracer.inductor.captured_graph import CapturedGraph
from stepscope.tracer.inductor.compile_layers import (
    InnerGraphs,
    Layer,
    LayerMissing,
    keeping_graphs,
    running,
)
from stepscope.tracer.inductor.graph_changes import change_of, changed_lines
from stepscope.tracer.judge.clones import NotComparable
from stepscope.tracer.judge.comparison import Side
from stepscope.tracer.judge.memory import is_out_of_memory
from stepscope.tracer.schema.layer_checks import LayerStep, SettingTrial, TensorDifference
from stepscope.tracer.schema.process_ends import Frame

INNER: tuple[Layer, ...] = ("aot", "joint", "post_grad")
MOST_CHARACTERS = 200
NO_MEMORY = "there was not enough memory to run it"
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
    lines: list[Frame] = field(default_factory=list)
    """The lines of the program from which the changed nodes come."""
    change: list[str] = field(default_factory=list)
    """The most telling lines of the change of the graph."""
    settings: list[SettingTrial] = field(default_factory=list)
    """The settings that were tried where a layer of Inductor differs."""

    @property
    def is_inductors(self) -> bool:
        """Return whether the first layer that differs belongs to Inductor."""
        last = self.steps[-1] if self.steps else None
        return last is not None and last.verdict in ("differs", "eager_is_off") and last.after != "aot"


def first_difference(
    first: Side, last: Side, run: Callable[[], Side], compare: Compare, begin: Literal["dynamo", "aot"] = "dynamo"
) -> Found:
    """Compare the layers between `begin`, which gave `first`, and the kernels, which gave `last`.

    `run` calls the compiled graph on fresh copies; it runs the graph of the layer that is switched on.
    """
    found = Found()
    name: str = begin
    side, graph = first, None
    skipped: list[Layer] = []
    for layer in INNER if begin == "dynamo" else INNER[1:]:
        try:
            with running(layer) as ran:
                result = run()
        except (LayerMissing, NotComparable) as reason:
            if str(reason) != "its graph was not kept":
                found.steps.append(LayerStep(name, layer, "not_compared", str(reason)))
            continue
        except Exception as error:
            found.steps.append(LayerStep(name, layer, "not_compared", _raised(error)))
            skipped.append(layer)
            continue
        if not ran:  # the backward ran in another thread, or what ran came from a cache
            found.steps.append(LayerStep(name, layer, "not_compared", "its graph did not run"))
            continue
        next_graph = ran[-1]
        if _step(found, name, layer, compare(side, result)):
            _tell_changes(found, graph, ran, layer)
            return found
        name, side, graph = layer, result, next_graph
        skipped = []
    if _step(found, name, "compiled", compare(side, last)) and skipped and graph is not None:
        _tell_changes(found, graph, [graph], skipped[-1])  # a pass may have made what cannot run in eager mode
    return found


def _raised(error: Exception) -> str:
    if is_out_of_memory(error):
        return NO_MEMORY
    first = next(iter(str(error).strip().splitlines()), "")
    return f"the graph raised {type(error).__name__} in eager mode{': ' * bool(first)}{first[:MOST_CHARACTERS]}"


def in_new_compile(
    graph: CapturedGraph,
    inputs: Sequence[Any],
    first: Side,
    last: Side,
    run: Callable[[Callable[..., Any]], Side],
    compare: Compare,
    failed: Callable[[str, BaseException], None],
) -> Found:
    """Compile the graph again to have the graphs between its layers, and compare these as `first_difference` does.

    `run` calls a compiled graph on fresh copies of the inputs.
    """
    with keeping_graphs(failed):
        try:
            compiled = numeric_settings.compiled(graph.module, inputs)
        except Exception as error:
            why = NO_MEMORY if is_out_of_memory(error) else f"{type(error).__name__} was raised by a second compile"
            return Found([LayerStep("dynamo", "compiled", "not_compared", why)])
        return first_difference(first, last, lambda: run(compiled), compare)


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


def _tell_changes(found: Found, before: InnerGraphs | None, ran: Sequence[InnerGraphs], layer: Layer) -> None:
    """Tell what the passes before `layer` changed; the graph itself if there is none before it, or if no pass did."""
    after = ran[-1]
    new = after.of(layer)
    earlier = INNER[: INNER.index(layer)]
    old = next((graph for one in reversed(earlier) if (graph := after.of(one)) is not None), None)
    whole = next((graphs.whole for graphs in ran if graphs.whole is not None), None)
    if before is None and whole is not None:
        old, new = whole
    if new is not None:
        found.nodes = changed_lines(old, new)
        if old is not None:
            change = change_of(old, new)
            found.lines, found.change = change.frames, change.nodes


def tried(
    graph: CapturedGraph,
    inputs: Sequence[Any],
    first: Side,
    run: Callable[[Callable[..., Any]], Side],
    compare: Compare,
) -> list[SettingTrial]:
    """Compile the graph again with one setting of Inductor at a time, and compare with eager mode, which gave `first`.

    `run` calls a compiled graph on fresh copies of the inputs.
    """
    trials = []
    for name, value in numeric_settings.untried():
        try:
            with numeric_settings.changed(name, value):
                wrong, off = compare(first, run(numeric_settings.compiled(graph.module, inputs)))
            is_gone = not any(one.what not in MILD for one in (*wrong, *off))
            trials.append(SettingTrial(name, str(value), "removes" if is_gone else "stays"))
        except Exception as error:
            why = NO_MEMORY if is_out_of_memory(error) else f"{type(error).__name__} was raised"
            trials.append(SettingTrial(name, str(value), "not_compared", why))
    return trials
