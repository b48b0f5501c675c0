"""Queries the gradient of a parameter that a backward graph returned last."""

from __future__ import annotations

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.magnitudes import tensors_of
from stepscope.viewer.values.queries.nonfinite import value_row
from stepscope.viewer.values.rows import ValueRow

_LAST = """
    WITH slots AS (SELECT unnest($sites) AS site, unnest($arguments) AS argument)
    SELECT max(v.value), arg_max(v.step, v.value) FROM value_rows v JOIN slots USING (site, argument)
    WHERE v.log = $log AND v.launch < $launch AND v.moment = 'after' AND v.nan IS NOT NULL
"""


def last_gradient(trace: Trace, log: int, parameter: str, launch: int) -> tuple[ValueRow, int] | None:
    """Return what was read of the gradient of a parameter, by its name in the program, when a launch before `launch`
    had written it, and the step; None if it was not read."""
    slots = [slot for one in tensors_of(trace, log)["gradients"] if one.row.name == parameter for slot in one.slots]
    if not slots:
        return None
    sites, arguments = zip(*slots, strict=True)
    asked = {"sites": list(sites), "arguments": list(arguments), "log": log, "launch": launch}
    ((value, step),) = sql.rows(trace, _LAST, asked)
    return (value_row(trace, value), step) if value is not None else None
