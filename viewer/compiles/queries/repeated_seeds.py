"""Queries the seeds that a program sets in each step, and what compiled code draws after them."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

from stepscope.viewer.compiles.random_draws import drawn_in, lines_of
from stepscope.viewer.graphs.queries.dynamo_nodes import dynamo_graphs, functions_of
from stepscope.viewer.graphs.rows import SourceLine, line_at
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_SEEDS = """
    SELECT log, time_unix_ns, function, seed, device, called_ns, file, line FROM repeated_seeds
    ORDER BY log, time_unix_ns, device
"""
_CALLED = """
    WITH spans AS (SELECT unnest($starts::BIGINT[]) AS start_ns, unnest($ends::BIGINT[]) AS end_ns)
    SELECT g.compile_id, g.phase = 'forward' AS trains, min(g.graph) AS graph, min(c.step) AS step,
           list(DISTINCT s.start_ns) AS spans
    FROM calls c JOIN graphs g ON g.graph = c.graph JOIN spans s ON c.start_ns >= s.start_ns AND c.start_ns < s.end_ns
    WHERE c.log = $log AND g.phase IN ('forward', 'inference') AND g.compile_id IS NOT NULL
    GROUP BY g.compile_id, trains ORDER BY trains DESC, graph
"""
_TEXTS = "SELECT record FROM records WHERE log = ? AND compile_id = ? AND event = ? ORDER BY record"
_RANDOM = re.compile(r"rand|dropout|bernoulli|normal|multinomial|poisson|exponential|uniform|attention")


class SeedRow(NamedTuple):
    """A line that sets the same seed between successive steps."""

    log: int
    time_unix_ns: int
    function: str
    seed: str
    device: str
    called_ns: str
    """JSON list."""
    file: str | None
    line: int | None

    @property
    def place(self) -> SourceLine | None:
        return line_at(self.file, self.line)


class _Called(NamedTuple):
    """The calls of a compile's graphs between two of these seeds."""

    compile_id: str
    trains: bool
    graph: int
    step: int
    spans: list[int]
    """Begins of the spans that have a call."""


class Redrawn(NamedTuple):
    """Random numbers that compiled code draws after each of these seeds."""

    seed: SeedRow
    steps: int
    trains: bool
    """Whether a graph of a forward pass draws them."""
    graph: int
    step: int
    """The first of the steps."""
    operator: str | None
    """Such as ``dropout``; None if the graphs do not tell."""
    source: SourceLine | None
    """The line of the model."""


def redrawn(trace: Trace) -> list[Redrawn]:
    """Return the seeds after each of which a line of compiled code draws random numbers."""
    seeds = sql.records(SeedRow, trace, _SEEDS) if sql.has_rows(trace, "repeated_seeds") else []
    found = [_redrawn(trace, one) for one in seeds]
    return [one for one in found if one is not None]


def _redrawn(trace: Trace, seed: SeedRow) -> Redrawn | None:
    times: list[int] = sql.json_value(seed.called_ns) or []
    spans = [*pairwise(times)]
    asked = {"log": seed.log, "starts": [start for start, _ in spans], "ends": [end for _, end in spans]}
    met: dict[object, set[int]] = {}
    first: dict[object, _Called] = {}
    for called in sql.records(_Called, trace, _CALLED, asked):
        for source in _drawing_lines(trace, seed, called):
            key = called.trains, source
            first.setdefault(key, called)
            met.setdefault(key, set()).update(called.spans)
            if len(met[key]) == len(spans):
                one = first[key]
                operator = _operator(trace, seed.log, one.compile_id, source)
                return Redrawn(seed, len(times), one.trains, one.graph, one.step, operator, source)
    return None


def _drawing_lines(trace: Trace, seed: SeedRow, called: _Called) -> list[SourceLine | None]:
    """Return the lines of a compile that draw random numbers on the device."""
    event = f"aot_{'forward' if called.trains else 'inference'}_graph"
    found = dict[SourceLine | None, None]()
    for (record,) in sql.rows(trace, _TEXTS, [seed.log, called.compile_id, event]):
        text = trace.payload(record).decode("utf-8", "replace")
        names = [one.name for one in drawn_in(text) if one.device in (None, seed.device)]
        lines: list[SourceLine | None] = [*lines_of(text, names)]
        found |= dict.fromkeys((lines or [None]) if names else [])
    return [*found]


def _operator(trace: Trace, log: int, compile_id: str, source: SourceLine | None) -> str | None:
    """Return the operator that a line of the model calls to draw random numbers."""
    graphs = [one for one in dynamo_graphs(trace) if (one.log, one.compile_id) == (log, compile_id)]
    nodes = [node for of in graphs for function in functions_of(trace, of.record) for node in function.nodes.values()]
    named = (node.function for node in nodes if _RANDOM.search(node.function) and node.source == source)
    return next(named, None)
