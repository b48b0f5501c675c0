"""Compares two traces, or two steps of one trace."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

from stepscope.viewer.compare.debug_mode import compare_calls, has_debug_log
from stepscope.viewer.compare.queries.facts import kernel_facts, run_facts
from stepscope.viewer.compare.queries.pairs import check_part, lone_writers, match, match_logs, side_of
from stepscope.viewer.compare.queries.times import compare_times
from stepscope.viewer.compare.queries.values import Values
from stepscope.viewer.compare.rows import (
    FORMAT,
    TOLERANCE,
    Comparison,
    Wanted,
)
from stepscope.viewer.compare.verdict import Found, compared_by, verdict_of
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.store.two_traces import both

_PART = re.compile(r"(.+)#(step|rank|log)=([0-9]{1,18})")


def wanted(text: str) -> Wanted:
    """Read the name of a side: a trace, or a part of it such as ``trace#step=3``, ``trace#rank=1`` or
    ``trace#log=0#step=3``. A file of that name is a trace."""
    parts: dict[str, int] = {}
    while (found := _PART.fullmatch(text)) is not None and found[2] not in parts and not Path(text).exists():
        text, parts[found[2]] = found[1], int(found[3])
    return Wanted([text], **parts)


def compare(left: Wanted, right: Wanted, tolerance: float | None = None) -> Comparison:
    """Compare two sides: by digests and, where one is unknown or a tolerance is given, by statistics. A log that
    PyTorch's DebugMode saved may be on either side.

    Raises StepscopeError if one cannot be read or if they have nothing in common."""
    if has_debug_log(left, right):
        return compare_calls(left, right, tolerance)
    with ExitStack() as opened:
        ours = opened.enter_context(open_trace(left.trace))
        theirs = ours if left.trace == right.trace else opened.enter_context(open_trace(right.trace))
        return compare_opened((ours, left), (theirs, right), tolerance)


def compare_opened(left: tuple[Trace, Wanted], right: tuple[Trace, Wanted], tolerance: float | None) -> Comparison:
    """Compare two sides like `compare`. Both may be parts of the same open trace."""
    (ours, of_left), (theirs, of_right) = left, right
    for trace, side in (left, right):
        check_part(trace, side)
    sides = side_of(ours, of_left), side_of(theirs, of_right)
    for counted in sides:
        if not counted.graphs:
            raise StepscopeError(f"{counted.trace[0]} has no graph that Inductor compiled, so it cannot be compared.")
    logs, lost = match_logs((ours, of_left), (theirs, of_right))
    steps = of_left.step, of_right.step
    pairs = match(ours, theirs, steps, logs)
    if not pairs.graphs:
        raise StepscopeError(
            f"{of_left.trace[0]} and {of_right.trace[0]} have no graph in common, so there is nothing to compare:"
            " no graph has equal code, and none of the same function has half of its launch sites in common."
        )
    is_one_run = ours is theirs and all(a == b for a, b in logs)
    facts = [] if is_one_run else [*run_facts(ours, theirs, logs), *kernel_facts(ours, theirs, pairs.sites)]
    graphs = [(pair.left.graph, pair.right.graph) for pair in pairs.graphs]
    with both(ours, theirs) as (connection, names):
        values = Values(
            connection,
            names,
            graphs,
            pairs.sites,
            steps,
            TOLERANCE if tolerance is None else tolerance,
            tolerance is None,
        )
        first = values.first()
        inputs = values.inputs(ours, first[0]) if first else []
        launches = values.launches(ours, first[1]) if first else []
        if inputs:  # they say why the inputs of the first launch differ
            launches = [one for one in launches if one.inputs != "differ"]
        labels = {pair.left.graph: pair.left.label for pair in pairs.graphs}
        lone = [*lost, *pairs.without_partner, *values.without_partner(labels, all(side.value_rows for side in sides))]
        compared, growth = values.counted(), values.growth() if first else []
    writers = []
    if launches and launches[0].inputs == "unknown" and launches[0].place.left_site is not None:
        writers = lone_writers(ours, launches[0].place.left_site, [site.left for site in pairs.sites])
    found = Found(sides, pairs, facts, lone, compared, first[1] if first else None, inputs, launches, writers)
    verdict, sentence, unsteady = verdict_of(found)
    return Comparison(
        FORMAT,
        *sides,
        compared_by=compared_by(compared),
        by_bits=tolerance is None,
        tolerance=TOLERANCE if tolerance is None else tolerance,
        verdict=verdict,
        sentence=sentence,
        facts=facts,
        kernels=pairs.kernels,
        graphs=pairs.graphs,
        without_partner=lone,
        compared=compared,
        inputs=inputs,
        launches=launches,
        nondeterministic=unsteady,
        growth=growth,
        times=compare_times(ours, theirs, logs, pairs) if steps == (None, None) else None,
    )
