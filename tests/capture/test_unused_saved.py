"""Tensors that an evaluation keeps for a backward pass that does not come, and programs that keep others on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.scripts import PRELUDE, Scripts
from tests.capture.test_verdicts import record

pytestmark = pytest.mark.slow


BODY = """
net = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Tanh(), torch.nn.Linear(512, 8))
compiled = torch.compile(net)
def loss():
    return compiled(torch.rand(256, 64)).square().mean()
def evaluate(x):
    EVALUATE
with stepscope.trace(FOLDER):
    for step in range(3):
        loss().backward()
    evaluate(torch.rand(256, 64))
    loss().backward()
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Scripts:
    return Scripts(tmp_path_factory.mktemp("scripts"))


@pytest.mark.parametrize(
    ("evaluate", "is_told"),
    [
        ("return sum(loss() for _ in range(8)).item()", True),
        ("return [loss() for _ in range(8) if loss().backward() is None]", True),
        ("return sum(loss() for _ in range(5)).item()", False),
        ("return sum(loss().item() for _ in range(8))", False),
        ("return [compiled(x).detach() for _ in range(8)]", False),
        ("sum(loss() for _ in range(8)).backward()", False),
        ("with torch.no_grad(): return sum(loss() for _ in range(8)).item()", False),
    ],
    ids=["summed", "beside others", "few", "numbers", "results", "accumulated", "no_grad"],
)
def test_what_is_kept_for_no_backward_pass(scripts: Scripts, tmp_path: Path, evaluate: str, is_told: bool) -> None:
    found = [one for one in record(scripts, tmp_path, BODY.replace("EVALUATE", evaluate)) if one.kind == "growth"]
    assert [(one.kind, one.severity) for one in found] == [("growth", "warning")] * is_told
    for one in found:
        assert one.title.startswith("Graph 0/0 forward kept ")
        assert one.title.endswith(" for a backward pass that did not run")
        assert one.evidence["share"] > 0.5


def test_the_line_of_the_calls_is_named(scripts: Scripts, tmp_path: Path) -> None:
    code = "return sum(compiled(x).square().mean() for _ in range(8)).item()"
    body = BODY.replace("EVALUATE", code)
    (finding,) = [one for one in record(scripts, tmp_path, body) if one.kind == "growth"]
    line = next(at for at, text in enumerate((PRELUDE + body).splitlines(), 1) if text.strip() == code)
    assert (finding.source and finding.source.line) == line
    assert finding.proof[0] == f"The first of these calls is made at <string>:{line}."
