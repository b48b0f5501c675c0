"""Decides what differs first between two sides, and says it in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stepscope.viewer.compare.queries.pairs import Pairs, SitePair, Writer
from stepscope.viewer.compare.rows import (
    Compared,
    ComparedBy,
    Fact,
    InputDifference,
    LaunchDifference,
    Nondeterministic,
    Side,
    Verdict,
    WithoutPartner,
)
from stepscope.viewer.kernel_source.nondeterminism import causes_in
from stepscope.viewer.text.formats import plural

_CACHE_FOLDER = "_CACHE_DIR"
"""The end of the names of variables that choose where compiled code is kept, which changes no result."""
_MOST_NAMED = 3
_SAID = {
    "version": "the version of {}", "setting": "the setting {}", "environment": "the variable {}",
    "arguments": "the command", "machine": "the machine ({})", "kernel configuration": "the configuration of {}",
}  # fmt: skip
"""Topics of differences that may make equal code give other results, as a sentence names them."""


class Found(NamedTuple):
    """What was found out about two sides."""

    sides: tuple[Side, Side]
    pairs: Pairs
    facts: Sequence[Fact]
    lone: Sequence[WithoutPartner]
    compared: Compared
    first: int | None
    """The launch at which a value differs first; None if none does."""
    inputs: Sequence[InputDifference]
    launches: Sequence[LaunchDifference]
    writers: Sequence[Writer]
    """The sites without a partner that wrote what the first of these launches reads."""


def verdict_of(found: Found) -> tuple[Verdict, str, Nondeterministic | None]:
    """Return what differs first in the order of the left side's launches, a sentence about it, and the launch if it is
    nondeterministic."""
    unsteady = _nondeterministic(found)
    if unsteady is not None:
        return "nondeterministic", _unsteady_sentence(unsteady), unsteady
    given, made = next(iter(found.inputs), None), next(iter(found.launches), None)
    if given is not None and (made is None or given.place.left_launch <= made.place.left_launch):
        return "input", _input_sentence(found.inputs), None
    if made is not None:
        return ("launch" if made.inputs == "agree" else "output"), _launch_sentence(found, made), None
    if found.first is not None:
        return "output", _read_sentence(found.first, found.compared), None
    return *_without_values(found), None


def _without_values(found: Found) -> tuple[Verdict, str]:
    """Return the verdict on sides of which no compared value differs."""
    compared, known = found.compared, _unknown_values(found.sides, found.compared)
    graphs = found.pairs.graphs
    if any(pair.is_same_code is False for pair in graphs):
        return "code", f"The generated code differs. {known or 'No value that was compared differs.'}"
    if any(one.what != "value row" for one in found.lone):  # which values are read is a choice of the recording
        return "structure", f"One side has what the other lacks. {known or 'No value that was compared differs.'}"
    if known and all(pair.is_same_code is None for pair in graphs):
        return "nothing compared", f"{known} No log holds generated code that could be compared."
    if compared.value_rows and compared.by_digest == compared.value_rows:
        return "no difference", f"No difference was found: {compared.value_rows:,} value rows are equal in every bit."
    return "no difference", f"No difference was found. {known or ''}".strip()


def compared_by(compared: Compared) -> ComparedBy:
    if not compared.by_digest:
        return "statistics"
    return "digests" if compared.by_digest == compared.value_rows else "digests and statistics"


def _nondeterministic(found: Found) -> Nondeterministic | None:
    """Return the first launch if it wrote other bits although its inputs, its code and all that is known of both runs
    are equal."""
    first, given = next(iter(found.launches), None), next(iter(found.inputs), None)
    if first is None or first.inputs != "agree" or compared_by(found.compared) != "digests" or _explaining(found.facts):
        return None
    if given is not None and given.place.left_launch <= first.place.left_launch:
        return None
    site = _site_of(found.pairs, first)
    if site is None or not site.code or not site.is_same_code:
        return None
    buffers = list(dict.fromkeys(tensor.name for tensor in first.outputs))
    return Nondeterministic(first.place, buffers, causes_in(site.kernel, site.code))


def _site_of(pairs: Pairs, launch: LaunchDifference) -> SitePair | None:
    sites = launch.place.left_site, launch.place.right_site
    return next((site for site in pairs.sites if (site.left, site.right) == sites), None)


def _explaining(facts: Sequence[Fact]) -> list[str]:
    """Return the names of the differences of the runs that may make equal code give other results."""
    return [
        _SAID[one.topic].format(one.name)
        for one in facts
        if one.topic in _SAID and not (one.topic == "environment" and one.name.endswith(_CACHE_FOLDER))
    ]


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


def _unknown_values(sides: tuple[Side, Side], compared: Compared) -> str | None:
    """Return why no values were compared, or None if some were."""
    if compared.value_rows:
        return None
    lacking = [side for side in sides if not side.value_rows]
    which = "Neither side has" if len(lacking) == 2 else "The left side has no" if lacking[:1] == [sides[0]] else ""
    which = which or ("The right side has no" if lacking else "No pair of launches has")
    noun = "values" if lacking else "values that can be compared"
    return f"{which} {noun}, so results were not compared; `stepscope run --level values` records them."


def _input_sentence(inputs: Sequence[InputDifference]) -> str:
    place, others = inputs[0].place, len({one.tensor.name for one in inputs}) - 1
    more = f" In this call, {plural(others, 'other input')} {'differs' if others == 1 else 'differ'}, too." * (
        others > 0
    )
    return (
        f"The first difference is an input of graph {place.graph}: {inputs[0].tensor.known_name}, which launch"
        f" {place.left_launch} ({place.kernel}){_in_step(place.left_step)} is the first to read.{more}"
    )


def _launch_sentence(found: Found, launch: LaunchDifference) -> str:
    place = launch.place
    names = ", ".join(dict.fromkeys(tensor.name for tensor in launch.outputs))
    where = f" ({place.source.place})" if place.source else ""
    start = (
        f"The first difference is what launch {place.left_launch}, {place.kernel} of graph {place.graph}{where}, writes"
        f" to {names}{_in_step(place.left_step)}"
    )
    if launch.inputs == "agree":
        return f"{start}: its inputs agree{_of_code(found, launch)}"
    if launch.inputs == "near":
        return f"{start}. Its inputs differ too, by less than the tolerance, so it may only have amplified them."
    if launch.inputs == "differ":
        return f"{start}. Its inputs differ, but nothing that was compared before it does."
    if found.writers and launch is found.launches[0]:
        writer = found.writers[0]
        return (
            f"{start}. It reads {writer.name}, which {writer.kernel}{writer.place} wrote. That launch has no partner on"
            " the other side, so the difference may begin there."
        )
    return f"{start}. Not all of its inputs were read on both sides, so they may differ, too."


def _of_code(found: Found, launch: LaunchDifference) -> str:
    """Return the end of a sentence about a launch whose inputs agree: whether its code explains what differs."""
    site, facts = _site_of(found.pairs, launch), _explaining(found.facts)
    if site is None or not site.code:
        return "."
    if not site.is_same_code:
        return ", and its code differs."
    causes = causes_in(site.kernel, site.code)
    equal = ", and its code is equal."
    if causes:
        equal += f" It uses {' and '.join(causes)}."
    if not facts:
        return equal
    shown = [*facts[:_MOST_NAMED], *([f"{len(facts) - _MOST_NAMED} more"] if len(facts) > _MOST_NAMED else [])]
    named = f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else shown[0]
    return f"{equal} The runs differ in {named}, which may be the cause."


def _read_sentence(launch: int, compared: Compared) -> str:
    return (
        f"The first difference is a tensor that launch {launch} reads, although nothing that was compared before it"
        f" differs: its memory was changed by something that is not in the log. {compared.different_value_rows:,} of"
        f" {compared.value_rows:,} value rows differ."
    )


def _in_step(step: int | None) -> str:
    return "" if step is None else f" in step {step}"
