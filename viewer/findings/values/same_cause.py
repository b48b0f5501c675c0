"""Whether two cases of NaN or infinities have one cause: an operation and its backward, or one constant."""

from __future__ import annotations

from stepscope.viewer.findings.values.operations import Bad, operation, place, source_line
from stepscope.viewer.findings.values.origins import Case, Tracer
from stepscope.viewer.findings.values.suspects import suspects
from stepscope.viewer.graphs.rows import SiteRow, SourceLine


def is_its_backward(tracer: Tracer, case: Case, earlier: Case) -> bool:
    """Return whether a case is the backward of the operation that made NaN or an infinity, and first makes one in
    a step in which the operation did. In later steps, the parameters may have brought it to the operation."""
    backward, forward = tracer.site(case.hop.flow.site), tracer.site(earlier.hop.flow.site)
    if (tracer.phase(forward.graph), tracer.phase(backward.graph)) != ("forward", "backward"):
        return False
    if not case.how == earlier.how == "made" or min(case.steps) not in earlier.steps:
        return False
    if case.is_nan and earlier.is_nan and _is_one_of_several(source_line(backward, backward=True), forward):
        return True
    bad: Bad = "nan" if case.is_nan else "inf"
    line, name = place(source_line(forward)), operation(forward, bad="nan" if earlier.is_nan else "inf")
    if line == "" or line != place(source_line(backward, backward=True)):
        spread = tracer.spread(case.hop)
        return spread is not None and spread == tracer.spread(earlier.hop)
    if operation(backward, bad=bad, backward=True).endswith(f"backward of {name}"):
        return True
    return _has_same_constant(tracer, case, earlier)


def _is_one_of_several(line: SourceLine | None, forward: SiteRow) -> bool:
    """Return whether a line is one of several in a fused kernel that may have made its NaN."""
    lines = {stack[-1] for stack in forward.stacks if stack}
    return line in lines and len(lines) > 1 and any(line == one for _, one in suspects(forward))


def is_of_one_constant(tracer: Tracer, case: Case, other: Case) -> bool:
    """Return whether one launch made both from the same constant."""
    return case.hop.flow.launch == other.hop.flow.launch and _has_same_constant(tracer, case, other)


def _has_same_constant(tracer: Tracer, case: Case, other: Case) -> bool:
    constant = tracer.constant(other.hop)
    return constant is not None and constant == tracer.constant(case.hop)
