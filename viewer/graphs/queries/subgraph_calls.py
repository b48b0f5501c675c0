"""Calls of the subgraphs of cond, while_loop, scan and invoke_subgraph.

Generated code calls a subgraph as it launches a kernel, so its calls are rows of `launches`. They launch no kernel
themselves; the launches inside have rows of their own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_SITES = "SELECT site FROM sites WHERE kind = 'subgraph'"
_CALLS = f"""
    SELECT l.log, l.step, s.graph, count(*) FROM launches l JOIN sites s ON s.site = l.site AND s.kind = 'subgraph'
    WHERE l.site IN ({_SITES}) GROUP BY ALL
"""
_OF_STEP = f"""
    SELECT call, count(*) FROM launches WHERE log = ? AND step = ? AND site IN ({_SITES}) GROUP BY call
"""


@dataclass(frozen=True)
class SubgraphCalls:
    """The numbers of calls of subgraphs."""

    of_step: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Calls by log and step."""
    of_graph: Counter[int] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        return self.of_graph.total()


def subgraph_calls(trace: Trace) -> SubgraphCalls:
    """Return the numbers of calls in the whole trace."""
    return trace.once(_read)


def subgraph_calls_in_step(trace: Trace, log: int, step: int) -> dict[int, int]:
    """Return the calls of subgraphs in a step by the call that makes them. Calls that make none are left out."""
    return dict(sql.rows(trace, _OF_STEP, [log, step])) if subgraph_calls(trace).of_step[log, step] else {}


def _read(trace: Trace) -> SubgraphCalls:
    of_step: Counter[tuple[int, int]] = Counter()
    of_graph: Counter[int] = Counter()
    for log, step, graph, count in sql.rows(trace, _CALLS) if sql.row(trace, f"{_SITES} LIMIT 1") else ():
        of_step[log, step] += count
        of_graph[graph] += count
    return SubgraphCalls(of_step, of_graph)
