"""Findings about hooks that changed after the compile or pile up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.steps import ChangedHooks, HookAttribute, PiledHooks
from stepscope.viewer.findings import all_findings
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import LogBuilder, run

Open = Callable[[LogBuilder | bytes], Trace]


@pytest.mark.parametrize(
    ("attribute", "owners", "what", "end"),
    [
        (
            "_backward_hooks",
            2,
            "gradient hook of model.user.weight and 1 more parameter",
            "runs 18 times in step 18",
        ),
        ("_forward_hooks", 1, "forward hook of model.user.weight", "is there 18 times before step 18"),
        (
            "_forward_hooks",
            3,
            "forward hook of model.user.weight and 2 more modules",
            "is there 18 times before step 18",
        ),
    ],
)
def test_hooks_that_pile_up(opened: Open, attribute: HookAttribute, owners: int, what: str, end: str) -> None:
    of = attribute, "damp", "/src/train.py", 9, "model.user.weight", attribute == "_backward_hooks"
    log = LogBuilder().record(run()).record(PiledHooks(*of, owners, 18, 18, None, None)).record(End("exit", 1))
    (finding,) = [one for one in all_findings(opened(log)) if one.kind == "piled_hooks"]
    assert finding.title == (
        f"damp (train.py:9) is registered as a {what} in each step, and never removed, so that it {end}"
    )
    assert finding.severity == "warning"
    assert finding.source is not None
    assert finding.source.line == 9


@pytest.mark.parametrize(("is_added", "end"), [(True, "does not run it"), (False, "still runs it")])
def test_hooks_that_changed_after_the_compile(opened: Open, is_added: bool, end: str) -> None:
    builder = LogBuilder().record(run())
    for call in (2, 4):  # of two frames
        builder.record(
            ChangedHooks(str(call), call, "model.layers.1", "_forward_hooks", "steer", "/src/a.py", 9, is_added)
        )
    (finding,) = [one for one in all_findings(opened(builder.record(End("exit", 1)))) if one.kind == "changed_hooks"]
    change = "added" if is_added else "removed"
    assert finding.title == (
        f"The forward hook steer (a.py:9) of model.layers.1 was {change} after the compile, and compiled code {end}"
    )
    assert (finding.severity, finding.source and finding.source.line) == ("warning", 9)
    assert finding.proof[0].startswith("Seen at call 2 of frame 2, ")
