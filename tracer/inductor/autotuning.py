"""Finds what Inductor's autotuner measured for the nodes of a graph, and which choice the generated code uses.

The autotuner (torch/_inductor/select_algorithm.py) tells its times to feedback functions while a node is lowered, or
while the scheduler fuses nodes, which may settle the choice later. So the choice is read from the node after code
generation: the buffer of a template has the function that renders the choice; that of an operator has its inputs.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from stepscope.tracer.schema.tuning import Autotuned, MeasuredChoice, TunedInput

MOST_CHOICES = 100
NS_PER_MS = 1_000_000
_CALLED = "kernel_call_name"
"""What a choice that is an operator names the function by that the generated code calls."""


class _Tuning(NamedTuple):
    """What the autotuner told of one node."""

    graph: weakref.ref[Any]
    operation: str
    inputs: Sequence[Any]
    times: dict[Any, float]
    """Milliseconds by choice."""
    measured: bool | None


class _Thread(threading.local):
    def __init__(self) -> None:
        self.told: list[_Tuning] = []


class AutotuneTap:
    """Collects what the autotuner tells in each thread, until the code of the graph is generated."""

    def __init__(self, on_failure: Callable[[str, BaseException], None]) -> None:
        self._on_failure = on_failure
        self._thread = _Thread()
        self._measured: set[float] | None = None
        """All times that this process measured; None if it is not known which. A cache returns equal numbers."""

    def attach(self, undo: ExitStack) -> None:
        """Listen to each autotuner from its first use on until `undo` is closed.

        None is made here, which would add events to torch's own log. Without its private names nothing is recorded.
        """
        from torch._inductor import select_algorithm

        selector: Any = getattr(select_algorithm, "AlgorithmSelectorCache", None)
        names = ("__call__", "benchmark")
        if selector is None or not all(name in selector.__dict__ for name in names):
            return
        call, benchmark = (selector.__dict__[name] for name in names)
        heard: list[Any] = []
        measured = self._measured = set()

        def observed_call(owner: Any, *args: Any, **kwargs: Any) -> Any:
            savers = getattr(owner, "feedback_saver_fns", None)
            if savers is not None and self._feedback not in savers:
                savers.append(self._feedback)
                heard.append(savers)
            return call(owner, *args, **kwargs)

        def observed_benchmark(*args: Any, **kwargs: Any) -> Any:
            times = benchmark(*args, **kwargs)
            if isinstance(times, dict):
                measured.update(times.values())
            return times

        def forget() -> None:
            for savers in heard:
                if self._feedback in savers:
                    savers.remove(self._feedback)

        undo.callback(forget)
        for name, observed in zip(names, (observed_call, observed_benchmark), strict=True):
            undo.callback(setattr, selector, name, selector.__dict__[name])
            setattr(selector, name, observed)

    def _feedback(self, times: Any, operation: str, inputs: Any, *_args: Any) -> None:
        from torch._inductor.virtualized import V

        try:
            measured = None if self._measured is None else not self._measured.isdisjoint(times.values())
            self._thread.told.append(_Tuning(weakref.ref(V.graph), operation, list(inputs), dict(times), measured))
        except Exception as error:
            self._on_failure("autotuning", error)

    def take(self, graph: Any, nodes: Iterable[Any]) -> list[Autotuned]:
        """Return records, without the graph's number, for the nodes of `graph` whose code was generated. A tuning of
        which the node is not found is left out."""
        told = [one for one in self._thread.told if one.graph() is graph]
        self._thread.told = [one for one in self._thread.told if one.graph() not in (graph, None)]
        left = [node for node in nodes if hasattr(node, "get_operation_name")] if told else []
        found = []
        for tuning in told:
            try:
                record = _record(graph, tuning, left)
            except Exception as error:
                self._on_failure("autotuning", error)
                continue
            found += [record] if record is not None else []
        return found


def _record(graph: Any, tuning: _Tuning, nodes: Sequence[Any]) -> Autotuned | None:
    placed = _place(tuning, nodes)
    if placed is None:
        return None
    node, chosen = placed
    ordered = sorted(tuning.times, key=lambda choice: (not math.isfinite(tuning.times[choice]), tuning.times[choice]))
    at = ordered.index(chosen)
    listed = [*ordered[:MOST_CHOICES], *([chosen] if at >= MOST_CHOICES else [])]
    return Autotuned(
        graph=-1,
        snode=node.get_operation_name(),
        operation=tuning.operation,
        inputs=[_input(graph, one) for one in tuning.inputs],
        dynamic=not all(_is_number(size) for one in tuning.inputs for size in (*one.get_size(), *one.get_stride())),
        measured=tuning.measured,
        choices=[_measured(choice, tuning.times[choice]) for choice in listed],
        chosen=min(at, MOST_CHOICES),
    )


def _place(tuning: _Tuning, nodes: Sequence[Any]) -> tuple[Any, Any] | None:
    """Return the node of a tuning and the choice that it uses, or None if that is not certain."""
    renders = [(choice, render) for choice in tuning.times if (render := _render(choice)) is not None]
    for node in nodes:
        for choice, render in renders:
            if _render(node) is render:
                return node, choice
    operators = [choice for choice in tuning.times if _render(choice) is None]
    names = [one.get_name() for one in tuning.inputs]
    same = [node for node in nodes if _render(node) is None and _input_names(node)[: len(names)] == names]
    if len(same) != 1 or not operators:
        return None
    if len(operators) > 1:
        called = getattr(same[0], "python_kernel_name", None)
        operators = [one for one in operators if called is not None and one.info_dict().get(_CALLED) == called]
    return (same[0], operators[0]) if len(operators) == 1 else None


def _render(one: Any) -> Any:
    return getattr(one, "make_kernel_render", None)


def _input_names(node: Any) -> list[str]:
    return [one.get_name() for one in getattr(node, "inputs", ()) if hasattr(one, "get_name")]


def _input(graph: Any, node: Any) -> TunedInput:
    def numbers(sizes: Iterable[Any]) -> list[int]:
        return [int(graph.sizevars.optimization_hint(size, fallback=0)) for size in sizes]

    dtype = str(node.get_dtype()).removeprefix("torch.")
    return TunedInput(node.get_name(), dtype, numbers(node.get_size()), numbers(node.get_stride()))


def _is_number(size: Any) -> bool:
    return isinstance(size, int) or bool(getattr(size, "is_number", False))


def _measured(choice: Any, milliseconds: float) -> MeasuredChoice:
    took = round(milliseconds * NS_PER_MS) if math.isfinite(milliseconds) else None
    return MeasuredChoice(str(choice.name), str(getattr(choice, "description", "") or ""), took)


def from_payload(payload: dict[str, Any]) -> Autotuned:
    """Build the record from the values of `asdict`, which an earlier process kept. Raises KeyError or TypeError if they
    are of another version."""
    choices = [MeasuredChoice(**choice) for choice in payload["choices"]]
    inputs = [TunedInput(**one) for one in payload["inputs"]]
    return Autotuned(**{**payload, "inputs": inputs, "choices": choices, "measured": False})
