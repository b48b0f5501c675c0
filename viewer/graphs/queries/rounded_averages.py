"""Queries moving averages whose updates are too small for their dtype, from the graphs of Dynamo."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stepscope.viewer.graphs.queries.dynamo_nodes import Function, dynamo_graphs, functions_of
from stepscope.viewer.graphs.queries.program_names import names_of_dynamo
from stepscope.viewer.graphs.queries.weighted_sums import Form, WeightedSums
from stepscope.viewer.graphs.rows import SourceLine, commented_lines
from stepscope.viewer.store.trace import Trace

LEAST_CALLS = 3
LEAST_FACTOR = 1.0
"""An average that follows values nearer to it than this, relative to its magnitude, is not told."""
_SIGNIFICANT_BITS = {"bf16": 8, "f16": 11}


@dataclass(frozen=True)
class RoundedAverage:
    """Averages that one line of the program updates in place."""

    log: int
    graph: int
    step: int
    """The step of the first call of the graph."""
    start_ns: int
    names: tuple[str, ...]
    """In the program; "" for one whose name is unknown."""
    dtype: str
    """Such as ``bf16``."""
    weight: float
    """Of what is averaged, so that 1 - weight is that of the average itself."""
    factor: float
    """An element changes only if what is averaged differs from it by about so many times its magnitude."""
    source: SourceLine | None


def rounded_averages(trace: Trace) -> Iterator[RoundedAverage]:
    """Yield the averages in the order of their graphs, those of one line, dtype and weight together."""
    for of in dynamo_graphs(trace, LEAST_CALLS):
        groups: dict[tuple[str, float, SourceLine | None], list[str]] = {}
        for function in functions_of(trace, of.record)[:1]:
            for name, dtype, weight, source in averages(function):
                groups.setdefault((dtype, weight, source), []).append(name)
        names = names_of_dynamo(trace, of.log, of.compile_id, of.record) if groups else {}
        for (dtype, weight, source), inputs in groups.items():
            known = tuple(names[one].name or "" if one in names else "" for one in inputs)
            factor = factor_of(dtype, weight)
            yield RoundedAverage(of.log, of.graph, of.step, of.start_ns, known, dtype, weight, factor, source)


def factor_of(dtype: str, weight: float) -> float:
    """Return how far, relative to an element of an average, a new value must be away for the element to change.

    Numbers next to each other differ by at least 2^-p of their magnitude if they have p significant bits; an update by
    less than half of that is rounded away."""
    return float(2.0 ** -(_SIGNIFICANT_BITS[dtype] + 1) / weight)


def averages(function: Function) -> Iterator[tuple[str, str, float, SourceLine | None]]:
    """Yield the inputs that the function of a graph replaces by a weighted mean of themselves and of other values, if
    their dtype rounds updates by values away that differ by less than their magnitude: name, dtype, weight of the other
    values, line of the program."""
    inputs = {one.name: one.dtype for one in function.nodes.values() if one.function == "placeholder"}
    sums = WeightedSums()
    for line, source in commented_lines(function.text):
        for name in sums.run(line):
            dtype = inputs.get(name) or ""
            weight = _weight(name, sums.of(name))
            if weight is not None and dtype in _SIGNIFICANT_BITS and factor_of(dtype, weight) >= LEAST_FACTOR:
                del inputs[name]
                yield name, dtype, weight, source


def _weight(average: str, form: Form) -> float | None:
    """Return the weight of the other values if a form is a weighted mean of an average and of them."""
    weight = round(1 - form.get(average, 0), 12)
    is_mean = 0 < weight < 1 and abs(sum(form.values()) - 1) < 1e-6
    return weight if is_mean else None
