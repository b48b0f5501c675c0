"""Queries the kernels that read a buffer after it was freed."""

from __future__ import annotations

from stepscope.viewer.memory.queries.graph_index import graph_index, launches_of
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace


def readers_after(trace: Trace, graph: int, call: int, buffer: str, position: int) -> list[str]:
    """Return the kernels of launches from `position` on that take the memory of `buffer` as an input."""
    places = graph_index(trace, graph)
    names = [buffer, *places.other_names(buffer)]
    found = sql.rows(
        trace,
        "SELECT DISTINCT a.site FROM arguments a JOIN sites s ON s.site = a.site WHERE s.graph = $1 AND a.role <> 'out'"
        " AND (list_contains($2, a.storage) OR list_contains($2, a.buffer))",
        [graph, names],
    )
    readers = {site for (site,) in found}
    after = [site for _, site, _ in launches_of(trace, call)[position:] if site in readers]
    return [places.kernel(site) or "" for site in dict.fromkeys(after)]
