"""Compares the runs of two sides: versions, settings, environment, compiles and kernel configurations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from stepscope.viewer.compare.queries.pairs import SitePair
from stepscope.viewer.compare.rows import Fact
from stepscope.viewer.graphs.queries.kernel_configs import config_of
from stepscope.viewer.overview.queries.runs import list_runs
from stepscope.viewer.overview.rows import RunRow
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import plural

_COMPILES = """
    SELECT coalesce(function, 'an unknown function') || ': ' || status, count(*) FROM compiles
    WHERE log = ? GROUP BY ALL
"""
_EVENTS = """
    SELECT coalesce(function, 'an unknown function') || ': ' || replace(kind, '_', ' ') || ': '
           || coalesce(cause, text, ''), count(DISTINCT compile_id)
    FROM compile_events WHERE log = ? GROUP BY ALL
"""
_TUNED = (
    "SELECT s.site, s.graph, s.kernel FROM sites s JOIN tuned_kernels t ON t.graph = s.graph AND t.kernel = s.kernel"
)
_OF_MACHINE = ("packages", "variables")


def run_facts(left: Trace, right: Trace, logs: Sequence[tuple[int, int]]) -> list[Fact]:
    """Return how the runs of paired logs differ, each difference once."""
    ours, theirs = ({run.log: run for run in list_runs(trace)} for trace in (left, right))
    found: dict[Fact, None] = {}
    for a, b in logs:
        found |= dict.fromkeys(_of_runs(ours[a], theirs[b]))
        for statement in (_COMPILES, _EVENTS):
            counts: tuple[Counter[str], Counter[str]]
            counts = Counter(dict(sql.rows(left, statement, [a]))), Counter(dict(sql.rows(right, statement, [b])))
            found |= dict.fromkeys(
                Fact("compile", name, plural(counts[0][name], "time"), plural(counts[1][name], "time"))
                for name in sorted({*counts[0], *counts[1]})
                if counts[0][name] != counts[1][name]
            )
    return list(found)


def kernel_facts(left: Trace, right: Trace, sites: Sequence[SitePair]) -> list[Fact]:
    """Return the Triton kernels that ran with different configurations."""
    ours, theirs = ({site: (graph, kernel) for site, graph, kernel in sql.rows(one, _TUNED)} for one in (left, right))
    found = []
    for pair in sites:
        if pair.left in ours and pair.right in theirs:
            configs = config_of(left, *ours[pair.left]), config_of(right, *theirs[pair.right])
            if configs[0] != configs[1]:
                found.append(Fact("kernel configuration", f"{pair.kernel} of {pair.graph}", *map(_shown, configs)))
    return list(dict.fromkeys(found))


def _of_runs(a: RunRow, b: RunRow) -> Iterator[Fact]:
    for name in ("torch", "python", "triton", "cuda", "stepscope"):
        yield from _differing("version", {name: getattr(a, name)}, {name: getattr(b, name)})
    machines = [asdict(run.machine) if run.machine else {} for run in (a, b)]
    if all(machines):
        parts = {name: [machine.pop(name) for machine in machines] for name in _OF_MACHINE}
        yield from _differing("version", *parts["packages"])
        yield from _differing("environment", *map(_of_program, parts["variables"]))
        yield from _differing("machine", *machines)
    yield from _differing("machine", {"devices": a.devices}, {"devices": b.devices})
    yield from _differing("setting", a.config, b.config)
    yield from _differing("arguments", {"command": a.argv}, {"command": b.argv})
    yield from _differing("setting", {"level of the recording": a.level}, {"level of the recording": b.level})


def _of_program(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that do not say where and how the recorder writes."""
    return {name: value for name, value in variables.items() if not name.startswith("STEPSCOPE_")}


def _differing(topic: Any, left: Mapping[str, Any], right: Mapping[str, Any]) -> Iterator[Fact]:
    for name in sorted({*left, *right}):
        if left.get(name) != right.get(name):
            yield Fact(topic, name, _shown(left.get(name)), _shown(right.get(name)))


def _shown(value: Any) -> str | None:
    if isinstance(value, list):
        return " ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{name}={one}" for name, one in sorted(value.items()))
    return None if value is None else str(value)
