"""Queries the lifetime mismatches found by checks in generated code (`stepscope.check_memory_step`)."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.viewer.graphs.queries.program_names import name_in_program
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.memory.queries.graph_index import graph_index
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_CHECKS = """
    SELECT log, graph, arg_min(call, mismatch), file, line, is_final_step, kind, buffer,
           arg_min(storage_bytes, mismatch), sum(times)::BIGINT, arg_min(storage, mismatch), arg_min(site, mismatch),
           arg_min(holders, mismatch)
    FROM memory_step_mismatches WHERE $1 IS NULL OR graph = $1
    GROUP BY log, graph, file, line, is_final_step, kind, buffer ORDER BY min(mismatch)
"""


@dataclass(frozen=True)
class CheckMismatchRow:
    log: int
    graph: int | None
    """None if the code is not a recorded wrapper."""
    call: int | None
    """First call in which it was found."""
    file: str
    line: int
    """Line of the check."""
    is_final_step: bool
    kind: str
    """``missing_death``, ``unexpected_death``, ``missing_allocation`` or ``unexpected_allocation``."""
    buffer: str
    storage_bytes: int | None
    times: int
    """Number of times it was found."""
    storage: str
    """First name of the buffer's memory."""
    site: int | None
    """Launch site that ran last before the check."""
    kernel: str | None
    """Kernel of that site."""
    holders: list[str]
    source: SourceLine | None
    """Model line of the launch that writes the buffer."""
    program: str | None
    """Name in the user's program; None if it has none or it is unknown."""


def check_mismatches(trace: Trace, graph: int | None = None) -> list[CheckMismatchRow]:
    """Return the mismatches of one graph, or of all, in the order in which they were found."""
    found = []
    for *known, holders in sql.rows(trace, _CHECKS, [graph]):
        its_graph, buffer, site = known[1], known[7], known[11]
        places = graph_index(trace, its_graph) if its_graph is not None else None
        source = places.source(places.writer(buffer)) if places is not None else None
        kernel = places.kernel(site) if places is not None else None
        program = name_in_program(trace, its_graph, buffer)
        found.append(CheckMismatchRow(*[*known, kernel, sql.json_value(holders), source, program]))
    return found
