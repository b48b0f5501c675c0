"""Finds the operators that draw random numbers in the text of a graph of AOTAutograd, without reading a trace."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from stepscope.viewer.compiles.provenance_lines import graph_lines
from stepscope.viewer.graphs.rows import SourceLine

_DRAWS = re.compile(
    r'^[ \t]+(\w+)(?:: "([^"]*)")? = torch\.ops\.(?:prims\.inductor_seeds?|aten\.(?:rand|randn|randint|randperm|normal'
    r"|bernoulli|multinomial|uniform|exponential|native_dropout|rrelu_with_noise)(?:_like|_functional)?)\.(.*)",
    re.MULTILINE,
)
"""A statement that takes new numbers from a generator. Those of `inductor_random` follow from a seed."""
_DEVICE = re.compile(r"\b(cpu|cuda)\b")
_WORD = re.compile(r"\w+")


class Draw(NamedTuple):
    """A node that draws random numbers."""

    name: str
    device: str | None
    """Such as ``cuda``; None if the text does not tell."""


def drawn_in(text: str) -> list[Draw]:
    """Return the nodes of a graph that take new numbers from a generator."""
    found = []
    for name, annotation, call in _DRAWS.findall(text):
        device = _DEVICE.search(annotation.rpartition("]")[2]) or _DEVICE.search(call)
        found.append(Draw(name, device[1] if device is not None else None))
    return found


def lines_of(text: str, names: Iterable[str]) -> list[SourceLine]:
    """Return the lines of the model of the nodes in a graph, or else of what uses them, in order."""
    of_node, found = graph_lines(text).source_of, dict[SourceLine, None]()
    wanted = set(names)
    for number, line in enumerate(text.splitlines(), 1):
        if number in of_node and not wanted.isdisjoint(_WORD.findall(line)):
            found[of_node[number]] = None
    return [*found]
