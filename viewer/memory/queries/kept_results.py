"""Queries the results of several calls that are one piece of memory."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_KEPT = """
    SELECT k.log, k.time_unix_ns, g.graph, k.step, k.buffer, k.kept, k.holder
    FROM kept_results k JOIN graphs g ON g.log = k.log AND g.local_graph = k.graph ORDER BY k.time_unix_ns, k.buffer
"""
_SITE = """
    SELECT max(s.site) FROM sites s JOIN arguments a ON a.site = s.site
    WHERE s.graph = ? AND a.role <> 'in' AND list_contains([a.storage, a.buffer, a.name], ?)
"""


class KeptResult(NamedTuple):
    """An input of a graph that each call writes, and that the program keeps as the result of several calls."""

    log: int
    time_unix_ns: int
    graph: int
    step: int
    buffer: str
    kept: int
    holder: str | None


def kept_results(trace: Trace) -> list[KeptResult]:
    """Return the inputs in order of time."""
    return sql.records(KeptResult, trace, _KEPT, [])


def last_writer(trace: Trace, graph: int, buffer: str) -> int | None:
    """Return the last site of a graph that writes a buffer."""
    site: int | None = sql.number(trace, _SITE, [graph, buffer])
    return site
