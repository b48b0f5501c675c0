"""A module keeps layers or parameters in a plain list or dictionary, of which `Module.parameters` knows nothing. They
have gradients, but belong to no optimizer when an optimizer of `torch.optim` that trains other parameters of the module
begins its fifth step. They keep their first values, and no `zero_grad` of an optimizer sets their gradients to zero.
Parameters that require no gradient do not count. Layers belong in a `ModuleList` or `ModuleDict`, parameters in a
`ParameterList` or `ParameterDict`, so that they are also moved, saved and loaded with the module. There is one finding
per list."""

from __future__ import annotations

import orjson

from stepscope.viewer.compiles.queries.guard_text import same_source
from stepscope.viewer.findings.evidence import Evidence, Timed, names_text, rule_of
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.rows import line_at
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.text.formats import plural
from stepscope.viewer.values.queries.untrained_parameters import Untrained, untrained

SUMMARY = "Parameters in a plain list are not trained"
TITLE_IS_MEASURED = True


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per list."""
    return [_finding(evidence, one) for one in untrained(evidence.trace)]


def _finding(evidence: Evidence, one: Untrained) -> Timed:
    source, container = line_at(one.file, one.line), same_source(one.container)
    names = [same_source(name) for name in orjson.loads(one.names)]
    belong = "belongs" if one.parameters == 1 else "belong"
    return one.time_unix_ns, Finding(
        kind="untrained_parameters",
        severity="warning",
        title=(
            f"{plural(one.parameters, 'parameter')} in {container} {belong} to no optimizer and will not be trained:"
            f" {container} is a plain list or dictionary"
        ),
        proof=[
            f"In it: {names_text(names, one.parameters)}",
            f"{one.name}{place(source)} trains {plural(one.trained, 'parameter')}. Module.parameters() leaves out those"
            " in a plain list or dictionary; make it a ModuleList, ModuleDict, ParameterList or ParameterDict.",
        ],
        rule=rule_of(__doc__),
        evidence={
            "container": container, "parameters": one.parameters, "optimizer": one.name, "trained": one.trained,
            "names": names,
        },
        page="/",
        rank=evidence.rank_of(one.log),
        log=one.log,
        source=source,
    )  # fmt: skip
