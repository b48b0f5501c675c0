"""Queries about the launch that a script repeats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stepscope.viewer.graphs.queries.graphs import before_return, site_rows
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.saved_tensors import SavedTensorPlace, saved_tensor

_SAVED = """
    SELECT tensor FROM saved_tensors
    WHERE launch = ? AND site = ? AND argument = ? AND item IS NOT DISTINCT FROM ? AND moment = ? ORDER BY tensor
"""
_REACHED = """
    SELECT s.site, bool_and(coalesce(l.returned, true)) FROM sites s JOIN launches l ON l.site = s.site
    WHERE s.graph = ? AND s.function = ? AND l.call = ? GROUP BY s.site ORDER BY s.site
"""


@dataclass(frozen=True)
class TensorShape:
    """The shape of a tensor argument of a function's launch, by its name in the wrapper."""

    name: str
    size: Sequence[int]
    stride: Sequence[int]


@dataclass(frozen=True)
class StepLaunches:
    """The launches of a step in one log; their ids are a range."""

    first: int
    count: int


def launches_of_step(trace: Trace, step: int, rank: int | None) -> list[StepLaunches]:
    """Return the launches of a step in each log that has the step."""
    return sql.records(
        StepLaunches,
        trace,
        "SELECT min(launch) AS first, count(*) AS count FROM launches JOIN logs USING (log)"
        " WHERE step = $1 AND ($2 IS NULL OR rank = $2) GROUP BY log ORDER BY log",
        [step, rank],
    )


def saved_at(
    trace: Trace, launch: int, site: int, argument: int, item: int | None, moment: str
) -> SavedTensorPlace | None:
    """Return the tensor that was saved of an argument, or None."""
    tensor = sql.number(trace, _SAVED, [launch, site, argument, item, moment])
    return None if tensor is None else saved_tensor(trace, tensor)


def shapes_of_function(trace: Trace, graph: int, function: str, call: int) -> Iterator[TensorShape]:
    """Yield the shapes of the arguments of the launches of `call`, a call of a function of a graph.

    Sites that the call did not reach are left out, since their shapes are those of other calls.
    """
    returned: dict[int, bool] = dict(sql.rows(trace, _REACHED, [graph, function, call]))
    for row in site_rows(trace, list(returned), call):
        site = row if returned[row.site] else before_return(row)
        for argument in site.arguments:
            for tensor in argument.tensors:
                if tensor["item"] is None and tensor["size"]:
                    yield TensorShape(argument.name, tensor["size"], tensor["stride"])


def launch_before(trace: Trace, launch: int, site: int) -> int | None:
    """Return the last launch of a site before `launch`, or None."""
    found = sql.number(trace, "SELECT max(launch) FROM launches WHERE site = ? AND launch < ?", [site, launch])
    return None if found is None else int(found)


def was_in_flight(trace: Trace, launch: int) -> bool:
    """Return whether a launch had not returned, or its device had not finished it, when the process died."""
    return bool(
        sql.number(trace, "SELECT count(*) FROM ring_launches WHERE launch = ? AND role = 'in_flight'", [launch])
    )
