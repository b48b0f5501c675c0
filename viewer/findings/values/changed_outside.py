"""An input of a graph changed between two calls although it stayed in its memory and no launch of the log writes this
memory: code outside of the recorded graphs did, through this tensor or another one that shares its memory. Told, for
information, are buffers of modules that had the same bits in three or more calls and then changed. It is a warning if
the standard deviation of an input of 16 or more floating-point elements, which is no parameter, was multiplied by the
same factor between three or more calls in a row: the program transforms the same data in place again and again.
Digests of all elements are compared. Parameters are left out, because optimizers write them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from stepscope.viewer.findings.evidence import Evidence, Timed, open_launch, program_name, rule_of
from stepscope.viewer.findings.values.describe import describe, number
from stepscope.viewer.findings.values.operations import place, source_line
from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.graphs.queries.program_names import name_in_program, program_names
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import plural
from stepscope.viewer.values.queries.nonfinite import launch_place
from stepscope.viewer.values.queries.outside_changes import OutsideInput, changed_outside
from stepscope.viewer.values.queries.values import has_values, values_of

SUMMARY = "An input changed between two calls although no launch wrote it"
TITLE_IS_MEASURED = True

LEAST_CALLS, LEAST_ELEMENTS, MOST_FINDINGS = 4, 16, 10
_SAME_FACTOR, _NO_FACTOR = 1e-3, 1e-2


class Change(NamedTuple):
    """A change of an input between the call at `position` of its readings and the call before."""

    of: OutsideInput
    position: int
    factor: float | None
    """The factor that its values were multiplied by in this call and in those after it; None for a single change."""


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per input of the program."""
    trace = evidence.trace
    if not has_values(trace):
        return []
    changes = [change for one in changed_outside(trace, LEAST_CALLS) if (change := _change(trace, one)) is not None]
    first: dict[tuple[int, str | None], Change] = {}
    for change in changes:
        first.setdefault((change.of.log, name_in_program(trace, change.of.graph, change.of.name)), change)
    return [_finding(trace, change) for change in [*first.values()][:MOST_FINDINGS]]


def _change(trace: Trace, one: OutsideInput) -> Change | None:
    known = program_names(trace, one.graph).get(one.name)
    if known is None or known.kind not in ("buffer", "input"):
        return None
    if (scaled := scaling(one)) is not None:
        return scaled
    at = next(i for i, (before, now) in enumerate(pairwise(one.digests), 1) if now != before)
    return Change(one, at, None) if known.kind == "buffer" and at >= LEAST_CALLS - 1 else None


def scaling(one: OutsideInput) -> Change | None:
    """Return the first change of those that multiply the values of an input by the same factor, or None."""
    if one.numel < LEAST_ELEMENTS or "float" not in one.dtype:
        return None
    factors = _factors(one.spreads)
    for i in range(len(factors) - LEAST_CALLS + 2):
        some = [factor for factor in factors[i : i + LEAST_CALLS - 1] if factor is not None]
        if len(some) == LEAST_CALLS - 1 and all(
            math.isclose(factor, some[0], rel_tol=_SAME_FACTOR) and abs(factor - 1) > _NO_FACTOR for factor in some
        ):
            return Change(one, i + 1, some[0])
    return None


def _factors(spreads: Sequence[float | None]) -> list[float | None]:
    return [now / before if before and now else None for before, now in pairwise(spreads)]


def _finding(trace: Trace, change: Change) -> Timed:
    one, at = change.of, change.position
    (site,) = site_rows(trace, [one.site])
    launch, step, name = one.launches[at], one.steps[at], program_name(trace, one.graph, one.name)
    where, source = launch_place(trace, launch), source_line(site)
    rows = values_of(trace, one.readings[at - 1 : at + 1])
    was, now = rows[one.readings[at - 1]], rows[one.readings[at]]
    between = f"between launch {was.launch} of step {one.steps[at - 1]} and launch {launch} of step {step}"
    if change.factor is None:
        title = f"{name}{place(source)} changed {between}, although no recorded launch writes it"
        before = f"it had the same bits in the {plural(at, 'call')} before"
    else:
        by = number(float(f"{change.factor:.3g}"))
        title = f"Code outside of the graphs multiplies {name}{place(source)} by {by} in place between the calls"
        before = f"first {between}, and no recorded launch writes it"
    return where.time_unix_ns, Finding(
        kind="changed_outside",
        severity="info" if change.factor is None else "warning",
        title=title,
        proof=[f"was {describe(name, was)}; is {describe(name, now)}", before],
        links=[open_launch(launch), open_launch(was.launch)],
        rule=rule_of(__doc__),
        evidence={
            "was": describe(name, was),
            "is": describe(name, now),
            "launch_before": was.launch,
            "calls_before": at,
            "factor": change.factor,
        },
        page=f"/steps/{step}?log={one.log}&launch={launch}",
        rank=where.rank,
        log=one.log,
        step=step,
        launch=launch,
        graph=one.graph,
        kernel=site.kernel,
        argument=one.name,
        buffer=one.name,
        source=source,
    )
