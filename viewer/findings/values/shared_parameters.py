"""Parameters that an optimizer of `torch.optim` trains have the same memory as other parameters of modules, which
require no gradient or belong to no optimizer, when it begins its second step. Each step changes the others, too, so
that a teacher or a target network is no copy, and its moving average is the trained model itself. Usual causes are
`load_state_dict(..., assign=True)` with the tensors of another module's `state_dict`, and an assignment to `data`. If
no other parameters have the memory, at least two tensors in dicts, lists or tuples of the program count, since
`state_dict()` and `detach()` do not copy: a moving average that begins with them writes to the trained parameters. They
count if the program writes to the memory between the second step and the third, as a moving average does. The finding
is a warning if one captured graph uses two such parameters. Otherwise it is for information, because a second module
may be meant to show the trained weights, as one for inference, and a program that clamps the trained parameters also
writes to their memory. One parameter that several modules have, as where
weights are tied, does not count, and neither do tensor subclasses such as DTensor, or parameters of graphs that
torch.fx has captured. Steps with a closure are not looked at."""

from __future__ import annotations

import orjson

from stepscope.viewer.findings.evidence import Evidence, Timed, names_text, rule_of
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.rows import line_at
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.text.formats import plural
from stepscope.viewer.values.queries.shared_parameters import Shared, shared

SUMMARY = "An optimizer changes parameters that share memory with those it trains"
TITLE_IS_MEASURED = True
_ADVICE = (
    "If they are to be a copy, clone() the tensors before load_state_dict(..., assign=True), or make the module by"
    " copy.deepcopy()."
)
_ADVICE_FOR_TENSORS = "state_dict() and detach() do not copy: if these tensors are to keep their values, clone() them."


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per optimizer."""
    return [_finding(evidence, one) for one in shared(evidence.trace)]


def _finding(evidence: Evidence, one: Shared) -> Timed:
    source = line_at(one.file, one.line)
    names, others = orjson.loads(one.names), orjson.loads(one.others)
    pairs = [f"{other} with {name}" for name, other in zip(names, others, strict=True)]
    return one.time_unix_ns, Finding(
        kind="shared_parameters",
        severity="warning" if one.is_in_graph else "info",
        title=_title(one, names, others, place(source)),
        proof=[
            f"The same memory: {names_text(pairs, one.parameters)}",
            *_uses(one),
            _ADVICE_FOR_TENSORS if one.are_tensors else _ADVICE,
        ],
        rule=rule_of(__doc__),
        evidence={
            "optimizer": one.name, "parameters": one.parameters, "names": names, "others": others,
            "in_graph": one.is_in_graph, "written": one.is_written,
        },
        page="/",
        rank=evidence.rank_of(one.log),
        log=one.log,
        source=source,
    )  # fmt: skip


def _title(one: Shared, names: list[str], others: list[str], at: str) -> str:
    steps = f"Each step of {one.name}{at} also changes"
    if one.parameters == 1:
        return f"{steps} {others[0]}, which has the memory of {names[0]}"
    more = plural(one.parameters - 1, "more tensor" if one.are_tensors else "more parameter")
    return f"{steps} {others[0]} and {more}, which have the memory of {names[0]} and others that it trains"


def _uses(one: Shared) -> list[str]:
    graph = ["A graph takes two parameters of the same memory as different ones"] if one.is_in_graph else []
    return [*graph, "The program writes to this memory between two steps"] if one.is_written else graph
