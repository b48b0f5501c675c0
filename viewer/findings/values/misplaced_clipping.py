"""In five successive steps of an optimizer of `torch.optim`, `clip_grad_norm_` did not limit the gradients with which
the optimizer stepped. Either it was called after the step, and `zero_grad` cleared the gradients before the next one,
so that it changed nothing. Or it was called after `GradScaler.scale` had multiplied the loss, and thus the gradients,
by a scale, and before `GradScaler` divided them by it: then it limits the norm of their multiples, so that the norm of
what the step uses is at most `max_norm` divided by the scale. Limits of 10,000 and more do not count, because such a
call only measures the norm, and neither do limits that are at least a hundredth of the scale, because the program may
have multiplied them by it. The first parameter of each optimizer with a gradient is looked at, of at most 16
optimizers; a call that clips in time for one of them does not count. Gradients that are cleared by other means than
`zero_grad`, steps in compiled code, and `clip_grad_value_` are not seen."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.rows import line_at
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.values.queries.misplaced_clipping import Clipped, misplaced_clipping

SUMMARY = "Gradients are clipped after the step, or before they are unscaled"
TITLE_IS_MEASURED = True


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per optimizer."""
    return [_finding(evidence, one) for one in misplaced_clipping(evidence.trace)]


def _finding(evidence: Evidence, one: Clipped) -> Timed:
    step, clip = line_at(one.file, one.line), line_at(one.clip_file, one.clip_line)
    is_scaled = one.scale is not None
    return one.time_unix_ns, Finding(
        kind="misplaced_clipping",
        severity="warning",
        title=_title(one, place(clip), place(step)),
        proof=[
            f"This happened in {one.steps} successive steps, with max_norm={one.max_norm:g}.",
            "Call scaler.unscale_(optimizer) before clip_grad_norm_()."
            if is_scaled
            else "Call clip_grad_norm_() after backward() and before step().",
        ],
        rule=rule_of(__doc__),
        evidence={"optimizer": one.name, "steps": one.steps, "max_norm": one.max_norm, "scale": one.scale},
        page="/",
        rank=evidence.rank_of(one.log),
        log=one.log,
        source=clip or step,
    )


def _title(one: Clipped, clip: str, step: str) -> str:
    if one.scale is not None:
        return (
            f"clip_grad_norm_(){clip} limits gradients that GradScaler has multiplied by {one.scale:,.6g}, so that"
            f" those which {one.name}{step} uses have a norm of at most {one.max_norm / one.scale:.2g}"
        )
    return (
        f"clip_grad_norm_(){clip} has no effect: it is called after {one.name}{step} has stepped, and zero_grad()"
        " clears the gradients before the next step"
    )
