"""Parameters of an optimizer of `torch.optim` require a gradient and had none in each of its first five steps, or one
that `zero_grad` had set to zero, so that it does not train them. The finding names the parameters by the modules that
hold them. It is a warning if no parameter had a gradient in the first 20 steps, or in all steps of a recording with at
least five: such steps of an optimizer of `torch.optim` itself change nothing. If `zero_grad` of the optimizer or of a
module had cleared gradients before each of these steps, the finding names its line. It is also a warning if parameters
run only in calls of `checkpoint` with `use_reentrant=True` none of whose inputs requires a gradient, because PyTorch
then computes none in the backward pass of the checkpoint, and if no module holds one of the parameters, although
modules hold others: a layer may have been replaced after the optimizer had been created, and the new one is then not
trained. Otherwise it is for information, because a part of the model may be meant not to be used; a `detach()` that was
left over, and a layer whose output is not used, are usual causes. If there are at most eight of them, and all that
compiled code returns of what it computes from them passes through `detach()` or `torch.no_grad()`, the finding names
these lines. Steps with a closure are not looked at."""

from __future__ import annotations

import orjson

from stepscope.viewer.findings.evidence import Evidence, Timed, names_text, rule_of
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.queries.cut_gradients import cut_gradients
from stepscope.viewer.graphs.queries.dynamo_nodes import Node
from stepscope.viewer.graphs.rows import SourceLine, line_at
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.text.formats import plural
from stepscope.viewer.values.queries.missing_gradients import WithoutGradients, without_gradients

SUMMARY = "Parameters of an optimizer have no gradient"
TITLE_IS_MEASURED = True
_NO_BACKWARD = (
    "The program probably calls no backward(), or the loss does not depend on these parameters: usual causes are"
    " detach(), torch.no_grad(), and an optimizer that has the parameters of another model."
)
_OTHERS = (
    "A compiled backward pass ran, but it computed no gradient of these parameters: usual causes are an optimizer that"
    " has the parameters of another model, detach(), and torch.no_grad()."
)
_REENTRANT = (
    "A reentrant checkpoint runs its function again in the backward pass only if an input of the checkpoint requires a"
    " gradient, which the output of frozen layers does not. Pass use_reentrant=False, or let the first input require a"
    " gradient (enable_input_require_grads() of transformers does this)."
)


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per optimizer."""
    return [_finding(evidence, one) for one in without_gradients(evidence.trace)]


def _finding(evidence: Evidence, one: WithoutGradients) -> Timed:
    source = line_at(one.file, one.line)
    named = list(zip(orjson.loads(one.names), orjson.loads(one.sizes), strict=True))
    known = [name for name, _ in named if name is not None]
    ends = cut_gradients(evidence.trace, one.log, known) if len(known) == one.missing else []
    return one.time_unix_ns, Finding(
        kind="missing_gradients",
        severity="warning" if one.unowned or one.checkpointed or one.missing == one.parameters else "info",
        title=_title(one, place(source)),
        proof=[
            *([f"Without a gradient: {names_text(known, one.missing - one.unowned)}"] if known else []),
            *_unowned([size for name, size in named if name is None]),
            *_ends(ends),
            *_advice(one),
        ],
        rule=rule_of(__doc__),
        evidence={
            "optimizer": one.name, "steps": one.steps, "parameters": one.parameters, "missing": one.missing,
            "unowned": one.unowned, "names": known,
        },
        page="/",
        rank=evidence.rank_of(one.log),
        log=one.log,
        source=_cause(one) or next((end.source for end in ends if end.source), source),
    )  # fmt: skip


def _clears(one: WithoutGradients) -> SourceLine | None:
    """Return the line that clears the gradients before each step."""
    is_each = one.cleared == one.steps and one.missing == one.parameters
    return line_at(one.zero_grad_file, one.zero_grad_line) if is_each else None


def _cause(one: WithoutGradients) -> SourceLine | None:
    return _clears(one) or (line_at(one.checkpoint_file, one.checkpoint_line) if one.checkpointed else None)


def _advice(one: WithoutGradients) -> list[str]:
    if _clears(one) is not None:
        return ["Call zero_grad() after step(), or before backward()."]
    if one.checkpointed:
        return [_REENTRANT]
    if one.missing == one.parameters:
        return [_OTHERS if one.has_backward else _NO_BACKWARD]
    return []


def _title(one: WithoutGradients, at: str) -> str:
    if (clears := _clears(one)) is not None:
        return (
            f"zero_grad(){place(clears)} clears the gradients before each of the first {one.steps} steps of"
            f" {one.name}{at}, so that these change nothing"
        )
    first = f"in its first {one.steps} steps"
    if one.checkpointed:
        which = place(line_at(one.checkpoint_file, one.checkpoint_line))
        run = "they run" if one.checkpointed == one.missing else f"{one.checkpointed:,} of them run"
        return (
            f"{one.missing:,} of {plural(one.parameters, 'parameter')} of {one.name}{at} had no gradient {first}: {run}"
            f" in a checkpoint{which} with use_reentrant=True, none of whose inputs requires a gradient"
        )
    if one.missing == one.parameters:
        return f"{one.name}{at} changed nothing {first}, because none of its parameters had a gradient"
    told = f"{one.missing:,} of {plural(one.parameters, 'parameter')} of {one.name}{at} had no gradient {first}"
    verb = "belongs" if one.unowned == 1 else "belong"
    if one.unowned == one.missing:
        return f"{told} and {verb} to no module"
    return f"{told}, and {one.unowned:,} of them {verb} to no module" if one.unowned else told


def _ends(ends: list[Node]) -> list[str]:
    """Return the lines behind which compiled code passes no gradient to parameters."""
    said = dict.fromkeys(
        f"{'detach()' if end.function == 'detach' else 'an operation in torch.no_grad()'}{place(end.source)}"
        for end in ends
    )
    return [f"In compiled code, their gradients end at {names_text([*said])}"] if said else []


def _unowned(sizes: list[list[int]]) -> list[str]:
    if not sizes:
        return []
    shown = names_text([str(size) for size in sizes])
    parameters = "parameter" if len(sizes) == 1 else "parameters"
    return [
        f"No module has the {parameters} of shape {shown}. A layer that is replaced after the optimizer was created"
        " leaves such parameters behind, and the new ones are not trained; load_state_dict(assign=True) does the same."
        " Create the optimizer afterwards."
    ]
