"""Queries what Inductor's autotuner measured for the launch sites of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stepscope.tracer.schema.tuning import TunedInput
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_TUNINGS = """
    WITH tuned AS (
        SELECT a.*, g.graph AS of_graph FROM autotuned a JOIN graphs g ON g.log = a.log AND g.local_graph = a.graph
    ), placed AS (
        SELECT t.*, s.site, from_json(s.snodes, '["VARCHAR"]') AS snodes
        FROM tuned t JOIN sites s ON s.graph = t.of_graph WHERE s.snodes IS NOT NULL
    )
    SELECT p.log, p.of_graph AS graph, p.site, p.operation AS operator, p.inputs, p.dynamic, p.measured, p.choices,
           p.chosen, len(p.snodes) = 1 AS is_alone, count(l.launch) AS launches,
           median(coalesce(l.device_duration_ns, l.duration_ns))::BIGINT AS launch_ns
    FROM placed p LEFT JOIN launches l ON l.site = p.site
    WHERE list_contains(p.snodes, p.snode) AND ($sites IS NULL OR list_contains($sites, p.site))
    GROUP BY ALL ORDER BY p.site
"""


@dataclass(frozen=True)
class TunedChoice:
    """A way to compute a node."""

    kernel: str
    """The autotuner's name of it."""
    description: str
    duration_ns: int | None
    """What the autotuner measured; None if the choice failed."""


@dataclass(frozen=True)
class Tuning:
    """What the autotuner measured for the operation of a launch site."""

    log: int
    graph: int
    site: int
    operator: str
    inputs: list[TunedInput]
    dynamic: bool
    """Whether a size is symbolic, so that launches may have other sizes."""
    measured: bool | None
    """Whether this process measured; None if that is not known."""
    choices: list[TunedChoice]
    """The fastest ones first, and at most 101."""
    chosen: int
    is_alone: bool
    """Whether the launch computes nothing besides this operation."""
    launches: int
    launch_ns: int | None
    """Median time of the site's launches: on the device where it was measured, else on the host."""

    @property
    def choice(self) -> TunedChoice:
        return self.choices[self.chosen]

    @property
    def fastest_ns(self) -> int | None:
        return self.choices[0].duration_ns


@dataclass(frozen=True)
class TuningGroup:
    """Launch sites for which the autotuner had the same times, because their inputs are alike."""

    first: Tuning
    sites: int


def tunings(trace: Trace, sites: Sequence[int] | None = None) -> list[Tuning]:
    """Return what was measured for these launch sites, or for all of a trace."""
    if not sql.has_rows(trace, "autotuned"):
        return []
    asked = {"sites": None if sites is None else list(sites)}
    found = sql.named(trace, _TUNINGS, asked, json=("inputs", "choices"))
    return [_tuning(row) for row in found if 0 <= row["chosen"] < len(row["choices"])]


def tuning_groups(trace: Trace, sites: Sequence[int]) -> list[TuningGroup]:
    """Return what was measured for these launch sites, those with the same times together."""
    groups: dict[Any, list[Tuning]] = {}
    for one in tunings(trace, sites):
        sizes = [(each.dtype, tuple(each.size), tuple(each.stride)) for each in one.inputs]
        times = [choice.duration_ns for choice in one.choices]
        groups.setdefault((one.log, one.operator, *sizes, *times, one.chosen), []).append(one)
    return [TuningGroup(group[0], len(group)) for group in groups.values()]


def _tuning(row: dict[str, Any]) -> Tuning:
    inputs = [TunedInput(**one) for one in row["inputs"]]
    choices = [TunedChoice(one["name"], one["description"], one["duration_ns"]) for one in row["choices"]]
    return Tuning(**{**row, "inputs": inputs, "choices": choices})
