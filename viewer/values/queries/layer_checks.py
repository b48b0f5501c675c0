"""Queries the comparisons between layers of a compile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_ROWS = """
    SELECT c.log, l.rank, c.time_unix_ns, c.compile_id, c.call, c.phase, c."before", c."after", c.verdict, c.why,
           c.tensors, c.differing, c.frame, c.differences
    FROM layer_checks c LEFT JOIN logs l ON l.log = c.log ORDER BY c.log, c.time_unix_ns
"""


@dataclass(frozen=True)
class LayerCheckRow:
    """A call of a compiled graph that was compared with an earlier layer of its compile."""

    log: int
    rank: int | None
    time_unix_ns: int | None
    compile_id: str | None
    call: int
    phase: str
    before: str
    after: str
    verdict: str
    """``agrees``, ``eager_is_off``, ``differs`` or ``not_compared``."""
    why: str | None
    tensors: int
    differing: int
    frame: SourceLine | None
    differences: list[dict[str, Any]]
    """The fields of `TensorDifference`."""


def layer_checks(trace: Trace) -> list[LayerCheckRow]:
    """Return all comparisons in order of time."""
    found = []
    for row in sql.named(trace, _ROWS, json=("frame", "differences")):
        row["frame"] = SourceLine(**row["frame"]) if row["frame"] else None
        row["differences"] = row["differences"] or []
        found.append(LayerCheckRow(**row))
    return found
