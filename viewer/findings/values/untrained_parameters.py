"""Parameters of a module have gradients, but belong to no optimizer when an optimizer of `torch.optim` that trains
other parameters of the module begins its fifth step, so that they keep their first values; no `zero_grad` of an
optimizer sets their gradients to zero. The finding is a warning, one per list, if a plain list or dictionary keeps
them or their layers, of which `Module.parameters` knows nothing: layers belong in a `ModuleList` or `ModuleDict`,
parameters in a `ParameterList` or `ParameterDict`, so that they are also moved, saved and loaded with the module.
Parameters that the module registers, and whose first elements did not change from the third step to the fifth, are
told for information: their layer may have been created after the optimizer, or they are left out on purpose and their
gradients are computed in vain. Programs with more than 16 optimizers are not looked at. Parameters that require no
gradient do not count."""

from __future__ import annotations

import orjson

from stepscope.viewer.compiles.queries.guard_text import same_source
from stepscope.viewer.findings.evidence import Evidence, Timed, names_text, rule_of
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.rows import line_at
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.text.formats import plural
from stepscope.viewer.values.queries.untrained_parameters import Untrained, untrained

SUMMARY = "Parameters with gradients have no optimizer"
TITLE_IS_MEASURED = True
_LISTED = (
    "Module.parameters() leaves out those in a plain list or dictionary; make it a ModuleList, ModuleDict,"
    " ParameterList or ParameterDict."
)
_REGISTERED = (
    "Pass the parameters of layers that were created after the optimizer to its add_param_group(). Call"
    " requires_grad_(False) for those that are not to be trained, so that no gradients are computed for them."
)


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per list or module."""
    return [_finding(evidence, one) for one in untrained(evidence.trace)]


def _finding(evidence: Evidence, one: Untrained) -> Timed:
    source = line_at(one.file, one.line)
    names = [same_source(name) for name in orjson.loads(one.names)]
    advice = _REGISTERED if one.is_registered else _LISTED
    return one.time_unix_ns, Finding(
        kind="untrained_parameters",
        severity="info" if one.is_registered else "warning",
        title=_title(one),
        proof=[
            f"In it: {names_text(names, one.parameters)}",
            f"{one.name}{place(source)} trains {plural(one.trained, 'parameter')}. {advice}",
        ],
        rule=rule_of(__doc__),
        evidence={
            "container": same_source(one.container), "parameters": one.parameters, "optimizer": one.name,
            "trained": one.trained, "names": names, "registered": one.is_registered,
        },
        page="/",
        rank=evidence.rank_of(one.log),
        log=one.log,
        source=source,
    )  # fmt: skip


def _title(one: Untrained) -> str:
    container = same_source(one.container)
    parameters = f"{plural(one.parameters, 'parameter')} in {container}"
    belong, them = ("belongs", "it") if one.parameters == 1 else ("belong", "them")
    if one.is_registered:
        return f"No optimizer trains {parameters}, although gradients are computed for {them}"
    return f"{parameters} {belong} to no optimizer and will not be trained: {container} is a plain list or dictionary"
