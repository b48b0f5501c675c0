"""Gradients that an optimizer of `torch.optim` gets are zero, so that the loss changes nothing about their parameters,
or too small for float16. The recorder looks at the gradients before the steps 6, 11 and 19 of each optimizer. The
finding names the parameters whose gradients were zero each time. It is a warning if these are all parameters that have
a gradient, and otherwise for information, because a part of the model may be meant not to be used. Zero gradients of
vectors alone, such as biases, do not count, because a loss that is a difference does not depend on a bias. If compiled
code computes with float16, and most elements of the gradients that are not zero are subnormal numbers of float16,
smaller ones have become zero: this is a warning, too. Gradients that were scaled for the backward pass, and divided by
the scale afterwards in float32, are no such numbers. Gradients that are missing, or were cleared before the step
(missing_gradients), and those of steps with a closure, do not count. If values were recorded, and an activation of the
same log is zero in every step (dead_activation), there is no other finding."""

from __future__ import annotations

import orjson

from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, names_text, rule_of
from stepscope.viewer.findings.values import dead_activation
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.rows import line_at
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.text.formats import plural
from stepscope.viewer.values.queries.missing_gradients import WithoutGradients, without_gradients
from stepscope.viewer.values.queries.values import has_values
from stepscope.viewer.values.queries.zero_gradients import WithZeroGradients, zero_gradients

SUMMARY = "Gradients are zero, or too small for float16"
TITLE_IS_MEASURED = True
_CAUSES = (
    "Usual causes are a result of compiled code that the loss does not use, a rectifier whose results are all zero, a"
    " mask that leaves nothing, and a factor of the loss that is zero"
)
_LOOK = "; record with --level values to look for an activation that is zero in every step"
_IN_FLOAT16 = "Compiled code computes with float16, in which small gradients become zero unless the loss is scaled."
_SCALE = (
    "Scale the loss with torch.amp.GradScaler, or compute in bfloat16, which has the range of float32: numbers below"
    " 3e-08 are zero in float16, and those below 6.1e-05 have fewer digits."
)


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per optimizer."""
    missing = {(one.log, one.name, one.file, one.line): one for one in without_gradients(evidence.trace)}
    found = [one for one in zero_gradients(evidence.trace) if one.zero or _underflows(one)]
    told = [missing.get((one.log, one.name, one.file, one.line)) for one in found]
    others = [one for one, other in zip(found, told, strict=True) if other is None or not _is_told(one, other)]
    dead = {one.log for _, one in dead_activation.find(evidence)} if others else set()
    return [_finding(evidence, one) for one in others if one.log not in dead or _underflows(one)]


def _is_told(one: WithZeroGradients, other: WithoutGradients) -> bool:
    """Return whether the gradients are zero because nothing has computed them since they were cleared. The other record
    names parameters within their outermost module."""
    missing = [name or "" for name in orjson.loads(other.names)]
    are_same = all(any(f".{name}".endswith(f".{end}") for end in missing) for name in _names(one))
    return not _underflows(one) and one.zero <= other.missing and are_same


def _names(one: WithZeroGradients) -> list[str]:
    return [name for name in orjson.loads(one.names) if name is not None]


def _underflows(one: WithZeroGradients) -> bool:
    return one.has_float16 and one.tiny_elements > 0


def _finding(evidence: Evidence, one: WithZeroGradients) -> Timed:
    source, names = line_at(one.file, one.line), _names(one)
    is_whole = one.zero == one.parameters
    return one.time_unix_ns, Finding(
        kind="zero_gradients",
        severity="warning" if is_whole or _underflows(one) else "info",
        title=_title(one, place(source)),
        proof=[
            *([f"Zero each time: {names_text(names, one.zero)}"] if names and not is_whole else []),
            *_advice(evidence, one),
        ],
        rule=rule_of(__doc__),
        evidence={
            "optimizer": one.name,
            "looked": orjson.loads(one.looked),
            **attributes(one, "parameters", "zero", "elements", "zero_elements", "tiny_elements"),
            "names": names,
        },
        page="/",
        rank=evidence.rank_of(one.log),
        log=one.log,
        source=source,
    )


def _advice(evidence: Evidence, one: WithZeroGradients) -> list[str]:
    if _underflows(one):
        return [_SCALE]
    others = f"{_CAUSES}{'' if has_values(evidence.trace) else _LOOK}."
    if one.has_float16 and one.zero == one.parameters:
        return [_IN_FLOAT16, _SCALE, others.replace("Usual causes", "Other causes")]
    return [others]


def _title(one: WithZeroGradients, at: str) -> str:
    looked = orjson.loads(one.looked)
    before = f"before its steps {names_text([str(step) for step in looked])}"
    if _underflows(one):
        others = one.elements - one.zero_elements
        return (
            f"The gradients that {one.name}{at} gets are too small for float16: in its step {looked[-1]},"
            f" {100 * one.zero_elements / one.elements:.0f} % of the elements are zero, and"
            f" {100 * one.tiny_elements / others:.0f} % of the others are below the smallest normal number of"
            " float16"
        )
    if one.zero == one.parameters:
        return f"All gradients of {one.name}{at} were zero {before}, so that the loss changes no parameter"
    gradients, were = ("gradient", "was") if one.zero == 1 else ("gradients", "were")
    of = f"{one.zero:,} of {plural(one.parameters, 'parameter')} of {one.name}{at}"
    return f"The {gradients} of {of} {were} zero {before}"
