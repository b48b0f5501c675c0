"""Queries the comparisons between layers of a compile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_ROWS = """
    SELECT c.log, l.rank, c.time_unix_ns, c.compile_id, c.call, c.phase, c."before", c."after", c.verdict, c.why,
           c.tensors, c.differing, c.frame, c.differences, c.layers, c.nodes, c.settings, c.lines, c.change
    FROM layer_checks c LEFT JOIN logs l ON l.log = c.log ORDER BY c.log, c.time_unix_ns
"""
_ELEMENTS = ("before", "after", "float64")


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
    layers: list[dict[str, Any]]
    """The fields of `LayerStep`; empty if the layers were not compared."""
    nodes: list[str]
    """The nodes that the layer which differs has changed, as lines of a diff."""

    settings: list[dict[str, Any]]
    """The fields of `SettingTrial`; empty if none was tried."""
    lines: list[SourceLine]
    """The lines of the model from which the changed nodes come, the most telling ones first."""
    change: list[str]
    """The most telling of the changed nodes, as lines of a diff."""

    @property
    def culprit(self) -> dict[str, Any] | None:
        """Return the first step whose layers differ; None if there is none, or it is unknown."""
        return next((step for step in self.layers if step["verdict"] in ("differs", "eager_is_off")), None)


def layer_checks(trace: Trace) -> list[LayerCheckRow]:
    """Return all comparisons in order of time."""
    found = []
    for row in sql.named(trace, _ROWS, json=("frame", "differences", "layers", "nodes", "settings", "lines", "change")):
        row["frame"] = SourceLine(**row["frame"]) if row["frame"] else None
        row |= {name: row[name] or [] for name in ("differences", "layers", "nodes", "settings", "change")}
        row["lines"] = [SourceLine(**line) for line in row["lines"] or []]
        row["differences"] = [one | {name: _number(one[name]) for name in _ELEMENTS} for one in row["differences"]]
        found.append(LayerCheckRow(**row))
    return found


def _number(text: str | None) -> float | str | None:
    """Return a finite number as such, since JSON has no others."""
    try:
        value = float(text or "")
    except ValueError:
        return text
    return value if math.isfinite(value) else text
