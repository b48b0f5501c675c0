"""A hook of a module was added or removed after code was compiled that calls the module, and the code was called again
without a new compile. Dynamo makes the hooks of the compile a part of the code. It has no guard on a module without
hooks, unless `torch._dynamo.config.skip_nnmodule_hook_guards` is False, so that the code does not run a hook that is
added later, as one that steers a model or collects activations. The hooks of the modules that a captured graph calls
are compared with those at each compile of the frame, in its second, fourth, eighth call and so on. A change that Dynamo
sees, as of a module that had hooks at its compile, leads to a new compile and does not count. A hook is known by the
name and the line of its function: another function of the same line in its place does not count, and neither do hooks
of torch itself, nor those of the module whose `forward` is the frame, which run outside of it."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.rows import line_at
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.values.queries.changed_hooks import ChangedHook, changed_hooks

SUMMARY = "A hook was added or removed after the compile, and compiled code goes on as before"
TITLE_IS_MEASURED = True
_WORDS = {
    "_forward_hooks": "forward hook",
    "_forward_pre_hooks": "forward pre-hook",
    "_backward_hooks": "backward hook",
    "_backward_pre_hooks": "backward pre-hook",
}
_ADVICE = (
    "Dynamo has no guards on modules without hooks by default. Set"
    " torch._dynamo.config.skip_nnmodule_hook_guards = False before the compile, or call"
    " torch._dynamo.reset() after each change of hooks."
)


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per hook."""
    return [_finding(evidence, one) for one in changed_hooks(evidence.trace)]


def _finding(evidence: Evidence, one: ChangedHook) -> Timed:
    source = line_at(one.file, one.line)
    change, effect = ("added", "does not run it") if one.is_added else ("removed", "still runs it")
    hook = f"{_WORDS.get(one.attribute, 'hook')} {one.name}{place(source)} of {one.module}"
    return one.time_unix_ns, Finding(
        kind="changed_hooks",
        severity="warning",
        title=f"The {hook} was {change} after the compile, and compiled code {effect}",
        proof=[f"Seen at call {one.call:,} of frame {one.frame}, before which it was not compiled again", _ADVICE],
        rule=rule_of(__doc__),
        evidence={"module": one.module, "hook": one.name, "attribute": one.attribute, "added": one.is_added},
        page="/",
        rank=evidence.rank_of(one.log),
        log=one.log,
        source=source,
    )
