"""Queries custom operators without results that are in the program and not in the generated code: the compiler leaves
out what changes nothing and returns nothing."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from stepscope.tracer.schema.constants import TORCH_NAMESPACES
from stepscope.viewer.graphs.queries.graphs import code_of_graph
from stepscope.viewer.graphs.queries.signatures import call_code
from stepscope.viewer.graphs.rows import SourceLine, commented_lines
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

# A compiler may divide Dynamo's graph, so that no part of it has all operators.
_WHOLE = """
    SELECT g.log, g.compile_id, list(DISTINCT g.graph ORDER BY g.graph) AS graphs, max(d.record) AS dynamo,
           list(DISTINCT a.record) AS lowered
    FROM graphs g JOIN records d ON d.log = g.log AND d.compile_id = g.compile_id AND d.event = 'dynamo_output_graph'
    JOIN records a ON a.log = g.log AND a.compile_id = g.compile_id AND a.record > d.record
     AND list_contains(['aot_inference_graph', 'aot_joint_graph'], a.event)
    WHERE g.not_recorded IS NULL
    GROUP BY ALL HAVING count(DISTINCT a.record) = 1 AND count(DISTINCT d.record) = 1 ORDER BY g.log, graphs
"""
_CALLS = """
    SELECT count(*), coalesce(arg_min(step, call), 0), coalesce(min(start_ns), 0) FROM calls WHERE graph = ?
"""
_CALL = re.compile(r"\s*(\w+) = torch\.ops\.(\w+)\.(\w+)(?:\.\w+)?\(([^;]*)")
_ALLOCATION = re.compile(r"\s*(\w+): \"[^\"]*\" = \w+\.(?:new_)?(?:empty|zeros|ones|full)(?:_\w+)?\(")
_USE = re.compile(r"(?<![\w.])[A-Za-z_]\w*\b(?! = |: \")")
"""A name in a graph, other than where it is made or given up."""


@dataclass(frozen=True)
class LeftOutOperator:
    """An operator that is missing in the generated code of a graph."""

    log: int
    graph: int
    """The first graph of the compile."""
    operator: str
    source: SourceLine | None
    calls: int
    step: int
    """The step of the first call of the graph."""
    start_ns: int


def left_out_operators(trace: Trace) -> list[LeftOutOperator]:
    """Return the operators in the order of their graphs."""
    found = []
    for log, _, graphs, dynamo, (lowered,) in sql.rows(trace, _WHOLE):
        written = without_results(_text(trace, dynamo))
        if not written:
            continue
        rest = [_text(trace, lowered), *(code_of_graph(trace, graph) or "" for graph in graphs)]
        if not all(map(call_code, rest[1:])):
            continue
        calls, step, start_ns = sql.row(trace, _CALLS, [graphs[0]]) or (0, 0, 0)
        for operator, source in written:
            if calls and not any(_has(text, operator, source) for text in rest):
                found.append(LeftOutOperator(log, graphs[0], operator, source, calls, step, start_ns))
    return found


def _text(trace: Trace, record: int) -> str:
    return trace.payload(record).decode("utf-8", "replace")


def without_results(graph: str) -> list[tuple[str, SourceLine | None]]:
    """Return the custom operators of Dynamo's graph without a result that is used, each with its first line.

    The name of a tensor has an annotation, and the parts of a tuple are taken out of it. An operator that gets a tensor
    of its own, which the program allocates and never uses, may be left out although it declares that it writes it.
    """
    if "torch.ops." not in graph:
        return []
    uses = Counter(_USE.findall("\n".join(line.partition("#")[0] for line in graph.splitlines())))
    found: dict[str, SourceLine | None] = {}
    own = set[str]()
    for line, source in commented_lines(graph):
        called, allocated = _CALL.match(line), _ALLOCATION.match(line)
        if allocated is not None and uses[allocated[1]] == 1:
            own.add(allocated[1])
        elif called is not None and not uses[called[1]] and own.isdisjoint(_USE.findall(called[4])):
            found.setdefault(f"{called[2]}.{called[3]}", source)
    return [(operator, line) for operator, line in found.items() if operator.split(".")[0] not in TORCH_NAMESPACES]


def _has(text: str, operator: str, source: SourceLine | None) -> bool:
    """Return whether a graph or generated code has the operator, or something else of its line, of which the operator
    may consist."""
    line = f"{source.file}:{source.line} " if source is not None else None
    is_called = any(f"torch.ops.{operator}{end}" in text for end in ".(,")
    return is_called or (line is not None and f"# File: {line}" in text)
