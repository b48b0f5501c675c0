"""Queries modules whose gradients DistributedDataParallel does not average, so that they differ on several ranks."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.ranks.queries.logs import rank_rows
from stepscope.viewer.speed.queries.graph_places import graph_places
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_UNAVERAGED = """
    SELECT log, time_unix_ns, name, steps, module, ranks, digest, collectives, file, line
    FROM unaveraged_gradients WHERE list_contains(?, log) ORDER BY log, time_unix_ns
"""
_FORWARD_GRAPHS = "SELECT graph FROM graphs WHERE log = ? AND phase = 'forward'"


class Unaveraged(NamedTuple):
    """A module in a DistributedDataParallel that is never called, as the process of one log tells."""

    log: int
    time_unix_ns: int
    name: str
    """The class of the optimizer that trains it."""
    steps: int
    module: str
    """The class of the module."""
    ranks: str
    """The ranks of the process group, as a JSON list."""
    digest: str
    collectives: int | None
    """The number of collectives that the process called during the steps."""
    file: str | None
    """The place in the program that steps the optimizer."""
    line: int | None


class Drift(NamedTuple):
    """A module that ranks train apart, by the first of their logs."""

    first: Unaveraged
    logs: int
    call: SourceLine | None
    """The only line of the program that calls forward graphs."""


def unaveraged_gradients(trace: Trace) -> list[Drift]:
    """Return the modules that differ on two ranks, or that one rank, whose log is the only one, trains without any
    collective."""
    compared = [row.log for row in rank_rows(trace) if row.compared]
    of_log: defaultdict[int, list[Unaveraged]] = defaultdict(list)
    for one in sql.records(Unaveraged, trace, _UNAVERAGED, [compared]):
        of_log[one.log].append(one)
    same: defaultdict[tuple[object, ...], list[Unaveraged]] = defaultdict(list)
    for found in of_log.values():
        for number, one in enumerate(found):
            same[number, one.ranks, one.module, one.name].append(one)
    is_alone = len(compared) == 1
    apart = [found for found in same.values() if _is_apart(found, is_alone=is_alone)]
    return [Drift(found[0], len(found), _call(trace, found[0].log)) for found in apart]


def _is_apart(found: list[Unaveraged], *, is_alone: bool) -> bool:
    if is_alone:
        return found[0].collectives == 0
    return len({one.digest for one in found}) > 1


def _call(trace: Trace, log: int) -> SourceLine | None:
    places = graph_places(trace, [graph for (graph,) in sql.rows(trace, _FORWARD_GRAPHS, [log])]).values()
    sources = {(one.source.file, one.source.line): one.source for one in places if one.source is not None}
    return next(iter(sources.values())) if len(sources) == 1 else None
