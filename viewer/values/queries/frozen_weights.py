"""Queries the frozen weights that changed, and what ran with the constants after that."""

from __future__ import annotations

import re
from typing import NamedTuple

from stepscope.viewer.graphs.queries.dynamo_nodes import functions_of
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_CHANGED = """
    WITH after AS (
        SELECT w.log, w.compile_id, w.name, w.ns, min(w.time_unix_ns) AS time_unix_ns, min(c.call) AS call,
               arg_min(c.graph, c.call) AS graph, arg_min(c.step, c.call) AS step
        FROM changed_frozen_weights w JOIN graphs g ON g.log = w.log AND g.compile_id = w.compile_id
        JOIN calls c ON c.graph = g.graph AND (w.ns IS NULL OR c.start_ns + c.duration_ns >= w.ns) GROUP BY ALL
    )
    SELECT log, graph, (SELECT min(site) FROM sites s WHERE s.graph = after.graph) AS site,
           list(name ORDER BY name) AS names, min(time_unix_ns) AS time_unix_ns,
           min(step) FILTER (ns IS NOT NULL) AS step
    FROM after GROUP BY log, compile_id, after.graph ORDER BY time_unix_ns
"""
_DYNAMO = """
    SELECT max(d.record) FROM graphs g
    JOIN records d ON d.log = g.log AND d.compile_id = g.compile_id AND d.event = 'dynamo_output_graph'
    WHERE g.graph = ?
"""


class FrozenChanges(NamedTuple):
    """The weights of a frozen graph that changed, and whose constants were used afterwards."""

    log: int
    graph: int
    site: int | None
    """The first launch site of the graph."""
    names: list[str]
    time_unix_ns: int
    step: int | None
    """The step of the first call of the graph after the first change; None if the log does not tell it."""


def frozen_changes(trace: Trace) -> list[FrozenChanges]:
    """Return the changes of all frozen graphs."""
    return sql.records(FrozenChanges, trace, _CHANGED, [])


def used_at(trace: Trace, graph: int, weight: str) -> SourceLine | None:
    """Return the line of the model that uses a weight, such as ``self.head.weight``, from Dynamo's graph; None if that
    does not tell it."""
    record = sql.number(trace, _DYNAMO, [graph])
    functions = functions_of(trace, record)[:1] if record is not None else []
    name = "l__self__" + re.sub(r"\W", "_", weight.removeprefix("self"))
    nodes = (node for function in functions for node in function.nodes.values())
    return next((node.source for node in nodes if node.name.lower() == name.lower()), None)
