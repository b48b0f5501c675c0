"""`load_state_dict()` gets the tensors that an earlier call of `state_dict()` returned, and restores nothing:
`state_dict()` does not copy, so that the tensors have the memory of the module's own parameters, which an optimizer of
`torch.optim` has changed in between. This happens to the weights of the best epoch if only a reference to them is kept,
also in a new dictionary or one that `copy.copy` made. All given parameters that the optimizer trains must be of this
kind. The call does not count if the program has written to the parameters since the last step, as to load a checkpoint
in place, and neither do `assign=True`, steps with a learning rate of zero, steps in compiled code, and tensor
subclasses such as DTensor."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.rows import line_at
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.text.formats import plural
from stepscope.viewer.values.queries.uncopied_states import Uncopied, uncopied_states

SUMMARY = "A kept state_dict() restores nothing, because it is no copy"
TITLE_IS_MEASURED = True


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per call."""
    return [_finding(evidence, one) for one in uncopied_states(evidence.trace)]


def _finding(evidence: Evidence, one: Uncopied) -> Timed:
    source, saved = line_at(one.file, one.line), line_at(one.saved_file, one.saved_line)
    return one.time_unix_ns, Finding(
        kind="uncopied_state",
        severity="warning",
        title=f"load_state_dict(){place(source)} restores nothing: state_dict(){place(saved)} returned the"
        f" parameters of {one.module} rather than copies, and {one.optimizer} has changed them since",
        proof=[
            f"{plural(one.parameters, 'parameter')} that {one.optimizer} trains would get their own values,"
            f" {plural(one.steps, 'step')} after state_dict()",
            "Keep copy.deepcopy(model.state_dict()), or clone() each tensor.",
        ],
        rule=rule_of(__doc__),
        evidence={
            "module": one.module, "optimizer": one.optimizer, "parameters": one.parameters, "steps": one.steps,
            "saved_file": one.saved_file, "saved_line": one.saved_line,
        },
        page="/",
        rank=evidence.rank_of(one.log),
        log=one.log,
        source=source,
    )  # fmt: skip
