"""A program registers a function as a hook of the same parameter or module in each step and never removes it, so that
each use runs it once more often than in the step before. The hooks of modules, and those of the parameters of an
optimizer of `torch.optim`, are counted before its 6th, 12th and 18th step; from one count to the next their number must
have grown by six or more. A hook is known by the name and the line of its function. Hooks of torch itself do not count,
and programs with more than four optimizers are not looked at. Compiled code does not run the hooks that a module got
after its compile."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.rows import line_at
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.text.formats import plural
from stepscope.viewer.values.queries.piled_hooks import PiledHook, piled_hooks

SUMMARY = "A hook is registered in each step and never removed"
TITLE_IS_MEASURED = True
_WORDS = {
    "_forward_hooks": "forward hook",
    "_forward_pre_hooks": "forward pre-hook",
    "_backward_hooks": "backward hook",
    "_backward_pre_hooks": "backward pre-hook",
}


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per function."""
    return [_finding(evidence, one) for one in piled_hooks(evidence.trace)]


def _finding(evidence: Evidence, one: PiledHook) -> Timed:
    source = line_at(one.file, one.line)
    hook = "gradient hook" if one.is_parameter else _WORDS.get(one.attribute, "hook")
    of = "parameter" if one.is_parameter else "module"
    more = f" and {plural(one.owners - 1, f'more {of}')}" if one.owners > 1 else ""
    last = (
        f"runs {one.hooks:,} times in step {one.step}"
        if one.is_parameter
        else f"is there {one.hooks:,} times before step {one.step}"
    )
    return one.time_unix_ns, Finding(
        kind="piled_hooks",
        severity="warning",
        title=f"{one.name}{place(source)} is registered as a {hook} of {one.owner}{more} in each step, and never"
        f" removed, so that it {last}",
        proof=["Register it once before the steps, or call remove() of the handle that the registration returns."],
        rule=rule_of(__doc__),
        evidence={
            "hook": one.name,
            "attribute": one.attribute,
            "owner": one.owner,
            "owners": one.owners,
            "hooks": one.hooks,
            "step": one.step,
        },
        page="/",
        rank=evidence.rank_of(one.log),
        log=one.log,
        source=source,
    )
