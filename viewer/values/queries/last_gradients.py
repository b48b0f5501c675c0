"""Queries the gradient of a parameter that a backward graph returned last."""

from __future__ import annotations

from stepscope.viewer.graphs.queries.graphs import graph_row
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.magnitudes import tensors_of
from stepscope.viewer.values.queries.nonfinite import value_row
from stepscope.viewer.values.rows import ValueRow

_LAST = """
    WITH slots AS (
        SELECT unnest($sites) AS site, unnest($arguments) AS argument
    ), written AS (
        SELECT s.site, s.argument FROM slots s JOIN sites p ON p.site = s.site JOIN graphs g ON g.graph = p.graph
        WHERE g.compile_id = (SELECT compile_id FROM graphs WHERE graph = $graph)
    )
    SELECT max(v.value), arg_max(v.step, v.value), max(v.launch)
           = (SELECT max(launch) FROM launches WHERE log = $log AND launch < $launch
              AND site IN (SELECT site FROM written))
    FROM value_rows v JOIN written USING (site, argument)
    WHERE v.log = $log AND v.launch < $launch AND v.moment = 'after' AND v.looked_at = v.numel
"""


def last_gradient(trace: Trace, graph: int, parameter: str, launch: int) -> tuple[ValueRow, int] | None:
    """Return the whole gradient of a parameter, by its name in the program, that the backward graph of `graph` had
    written last when `launch` began, and its step; None if it was not read or only sampled."""
    row = graph_row(trace, graph)
    found = tensors_of(trace, row.log)["gradients"] if row is not None else []
    slots = [slot for one in found if one.row.name == parameter for slot in one.slots]
    if row is None or not slots:
        return None
    sites, arguments = zip(*slots, strict=True)
    asked = {"sites": list(sites), "arguments": list(arguments), "log": row.log, "graph": graph, "launch": launch}
    ((value, step, is_last),) = sql.rows(trace, _LAST, asked)
    return (value_row(trace, value), step) if is_last else None
