"""Tells which option finds what the trace shows to be possible: finite but wrong numbers, and stray writes."""

from __future__ import annotations

from stepscope.tracer.schema.constants import TORCH_NAMESPACES
from stepscope.viewer.graphs.queries.graphs import code_of_graph
from stepscope.viewer.graphs.queries.hidden_aliases import operator_name
from stepscope.viewer.graphs.queries.signatures import returned_inputs
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import plural

MOST_GRAPHS = 20
"""Number of graphs whose code is looked at."""
MOST_NAMED = 3
_OWN_WRITERS = """
    SELECT DISTINCT s.kernel FROM sites s JOIN arguments a ON a.site = s.site AND a.role = 'inout' AND a.held <> 'input'
    WHERE s.kind = 'user_triton' OR (s.kind = 'fallback' AND starts_with(s.kernel, 'torch.ops.')
                                     AND NOT list_contains(?, split_part(s.kernel, '.', 3)))
    ORDER BY s.kernel
"""
_WITHOUT_ZONES = """
    SELECT count(*) > 0 AND bool_and(json_extract_string(run, '$.machine.variables.STEPSCOPE_RED_ZONES') = '0')
    FROM logs WHERE writer = 'stepscope'
"""


def is_compared(trace: Trace) -> bool:
    """Return whether calls of graphs were compared with eager mode or with another layer of their compile."""
    return sql.has_rows(trace, "layer_checks")


def eager_hint(trace: Trace) -> list[str]:
    """Return that graphs return an input itself, unless graphs were compared with eager mode.

    For healthy code, AOTAutograd makes such results outside of the graph. Graphs of training keep inputs for their
    backward, so they tell nothing.
    """
    if is_compared(trace):
        return []
    graphs = sql.rows(
        trace,
        "SELECT graph, compile_id FROM graphs WHERE phase = 'inference' AND not_recorded IS NULL"
        " ORDER BY graph LIMIT ?",
        [MOST_GRAPHS],
    )
    found = [compile_id or "?" for graph, compile_id in graphs if returned_inputs(code_of_graph(trace, graph) or "")]
    if not found:
        return []
    names = ", ".join(found[:MOST_NAMED]) + (", …" if len(found) > MOST_NAMED else "")
    return [
        f"{plural(len(found), 'graph')} ({names}) return an input itself as a result; record with --check-eager to see"
        " whether eager code gives memory of its own."
        if len(found) > 1
        else f"The graph {names} returns an input itself as a result; record with --check-eager to see whether eager"
        " code gives memory of its own."
    ]


def red_zone_hint(trace: Trace) -> list[str]:
    """Return that operators and Triton kernels of the program's own write into buffers of generated code, if `stepscope
    run` recorded them without red zones."""
    names = [operator_name(kernel) for (kernel,) in sql.rows(trace, _OWN_WRITERS, [list(TORCH_NAMESPACES)])]
    if not names or sql.row(trace, _WITHOUT_ZONES) != (True,):
        return []
    named = ", ".join(names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")
    verb = "writes" if len(names) == 1 else "write"
    return [
        f"It was not checked whether {named} {verb} outside of the given tensors; record with --red-zones to find out."
    ]
