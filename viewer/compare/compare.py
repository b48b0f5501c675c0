"""Compares two traces, or two steps of one trace."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Literal

from stepscope.viewer.compare.queries.facts import kernel_facts, run_facts
from stepscope.viewer.compare.queries.pairs import Pairs, has_step, logs_of, match, match_logs, side_of
from stepscope.viewer.compare.queries.times import compare_times
from stepscope.viewer.compare.queries.values import Values
from stepscope.viewer.compare.rows import (
    FORMAT,
    TOLERANCE,
    Compared,
    Comparison,
    InputDifference,
    LaunchDifference,
    Nondeterministic,
    Side,
    Verdict,
    Wanted,
    WithoutPartner,
)
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.kernel_source.nondeterminism import causes_in
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
    """Compare two sides: by digests and, where one is unknown or a tolerance is given, by statistics.

    Raises StepscopeError if one cannot be read or if they have nothing in common."""
    with ExitStack() as opened:
        ours = opened.enter_context(open_trace(left.trace))
        theirs = ours if left.trace == right.trace else opened.enter_context(open_trace(right.trace))
        return compare_opened((ours, left), (theirs, right), tolerance)


def compare_opened(left: tuple[Trace, Wanted], right: tuple[Trace, Wanted], tolerance: float | None) -> Comparison:
    """Compare two sides like `compare`. Both may be parts of the same open trace."""
    (ours, of_left), (theirs, of_right) = left, right
    for trace, side in (left, right):
        if side.rank is not None and not logs_of(trace, replace(side, log=None)):
            raise StepscopeError(f"{side.trace[0]} has no log of rank {side.rank}.")
        if side.log is not None and not logs_of(trace, side):
            of_rank = "" if side.rank is None else f" of rank {side.rank}"
            raise StepscopeError(f"{side.trace[0]} has no log{of_rank} with the number {side.log}.")
        if side.step is not None and not has_step(trace, side):
            raise StepscopeError(f"{side.trace[0]} has no call of a graph in step {side.step}.")
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
    verdict, sentence = _verdict(sides, pairs, lone, compared, inputs, launches)
    if first and not inputs and not launches:
        verdict, sentence = "output", _read_sentence(first[1], compared)
    unsteady = _nondeterministic(pairs, compared, launches) if verdict == "launch" else None
    if unsteady is not None:
        verdict, sentence = "nondeterministic", _unsteady_sentence(unsteady)
    is_one_run = ours is theirs and all(a == b for a, b in logs)
    return Comparison(
        FORMAT,
        *sides,
        compared_by=_compared_by(compared),
        by_bits=tolerance is None,
        tolerance=TOLERANCE if tolerance is None else tolerance,
        verdict=verdict,
        sentence=sentence,
        facts=[] if is_one_run else [*run_facts(ours, theirs, logs), *kernel_facts(ours, theirs, pairs.sites)],
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


def _verdict(
    sides: tuple[Side, Side],
    pairs: Pairs,
    lone: list[WithoutPartner],
    compared: Compared,
    inputs: list[InputDifference],
    launches: list[LaunchDifference],
) -> tuple[Verdict, str]:
    """Return what differs first in the order of the left side's launches, and a sentence about it."""
    given, made = next(iter(inputs), None), next(iter(launches), None)
    if given is not None and (made is None or given.place.left_launch <= made.place.left_launch):
        return "input", _input_sentence(given)
    if made is not None:
        return ("launch" if made.inputs == "agree" else "output"), _launch_sentence(made)
    known = _unknown_values(sides, compared)
    if any(pair.is_same_code is False for pair in pairs.graphs):
        return "code", f"The generated code differs. {known or 'No value that was compared differs.'}"
    if any(one.what != "value row" for one in lone):  # which values are read is a choice of the recording
        return "structure", f"One side has what the other lacks. {known or 'No value that was compared differs.'}"
    if known and all(pair.is_same_code is None for pair in pairs.graphs):
        return "nothing compared", f"{known} No log holds generated code that could be compared."
    if compared.value_rows and compared.by_digest == compared.value_rows:
        return "no difference", f"No difference was found: {compared.value_rows:,} value rows are equal in every bit."
    return "no difference", f"No difference was found. {known or ''}".strip()


def _nondeterministic(pairs: Pairs, compared: Compared, launches: list[LaunchDifference]) -> Nondeterministic | None:
    """Return the first launch if it wrote other bits although its inputs and its code are equal in both runs."""
    first = launches[0]
    known = [site for site in pairs.sites if (site.left, site.right) == (first.place.left_site, first.place.right_site)]
    if _compared_by(compared) != "digests" or not known or not known[0].code or not known[0].is_same_code:
        return None
    buffers = list(dict.fromkeys(tensor.name for tensor in first.outputs))
    return Nondeterministic(first.place, buffers, causes_in(known[0].kernel, known[0].code))


def _unsteady_sentence(found: Nondeterministic) -> str:
    place = found.place
    where = f" ({place.source.place})" if place.source else ""
    if found.causes:
        why = f"It uses {' and '.join(found.causes)}."
    elif "." in place.kernel:
        why = "The log does not hold what this operator computes inside."
    else:
        why = "Its code has neither a random number generator nor atomic additions."
    return (
        f"Nondeterministic: launch {place.left_launch}, {place.kernel} of graph {place.graph}{where}, is the first that"
        f" writes other bits to {', '.join(found.buffers)}{_in_step(place.left_step)}, from tensors that are equal in"
        f" every bit and with the same code. {why}"
    )


def _compared_by(compared: Compared) -> Literal["digests", "digests and statistics", "statistics"]:
    if not compared.by_digest:
        return "statistics"
    return "digests" if compared.by_digest == compared.value_rows else "digests and statistics"


def _unknown_values(sides: tuple[Side, Side], compared: Compared) -> str | None:
    """Return why no values were compared, or None if some were."""
    if compared.value_rows:
        return None
    lacking = [side for side in sides if not side.value_rows]
    which = "Neither side has" if len(lacking) == 2 else "The left side has no" if lacking[:1] == [sides[0]] else ""
    which = which or ("The right side has no" if lacking else "No pair of launches has")
    noun = "values" if lacking else "values that can be compared"
    return f"{which} {noun}, so results were not compared; `stepscope run --level values` records them."


def _input_sentence(found: InputDifference) -> str:
    tensor, place = found.tensor, found.place
    name = f"{tensor.program_name} ({tensor.name})" if tensor.program_name else tensor.name
    return (
        f"The first difference is an input of graph {place.graph}: {name}, which launch {place.left_launch}"
        f" ({place.kernel}){_in_step(place.left_step)} is the first to read."
    )


def _launch_sentence(found: LaunchDifference) -> str:
    place = found.place
    names = ", ".join(dict.fromkeys(tensor.name for tensor in found.outputs))
    where = f" ({place.source.place})" if place.source else ""
    start = (
        f"The first difference is what launch {place.left_launch}, {place.kernel} of graph {place.graph}{where}, writes"
        f" to {names}{_in_step(place.left_step)}"
    )
    if found.inputs == "agree":
        return f"{start}: its inputs agree."
    if found.inputs == "near":
        return f"{start}. Its inputs differ too, by less than the tolerance, so it may only have amplified them."
    if found.inputs == "differ":
        return f"{start}. Its inputs differ, but nothing that was compared before it does."
    return f"{start}. Not all of its inputs were read on both sides, so they may differ, too."


def _read_sentence(launch: int, compared: Compared) -> str:
    return (
        f"The first difference is a tensor that launch {launch} reads, although nothing that was compared before it"
        f" differs: its memory was changed by something that is not in the log. {compared.different_value_rows:,} of"
        f" {compared.value_rows:,} value rows differ."
    )


def _in_step(step: int | None) -> str:
    return "" if step is None else f" in step {step}"
