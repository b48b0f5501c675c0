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


EXCEPTIONS = """
net = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Tanh(), torch.nn.Linear(512, 8))
compiled, optimizer = torch.compile(net), torch.optim.SGD(net.parameters(), lr=0.01)
kept = []
def step(number):
    loss = compiled(torch.rand(256, 64)).square().mean()
    if number % 3 == 2:
        raise ArithmeticError(number)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
with stepscope.trace(FOLDER):
    for number in range(30):
        try:
            step(number)
        except ArithmeticError as error:
            kept.append(KEPT)
"""


@pytest.mark.parametrize(("kept", "is_told"), [("error", True), ("str(error)", False)])
def test_exceptions_that_are_kept(scripts: Scripts, tmp_path: Path, kept: str, is_told: bool) -> None:
    """What their functions hold is still alive when the recording ends."""
    found = record(scripts, tmp_path, EXCEPTIONS.replace("KEPT", kept))
    found = [one for one in found if one.kind == "growth"]
    assert [one.title.endswith(" for a backward pass that did not run") for one in found] == [True] * is_told
    assert all(any("is kept by a traceback." in said for said in one.proof) for one in found)


def test_a_recording_that_ends_before_the_backward_pass(scripts: Scripts, tmp_path: Path) -> None:
    body = """
    net = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Tanh(), torch.nn.Linear(512, 8))
    compiled, optimizer = torch.compile(net), torch.optim.SGD(net.parameters(), lr=0.01)
    def losses():
        return [compiled(torch.rand(256, 64)).square().mean() for _ in range(8)]
    with stepscope.trace(FOLDER):
        for _ in range(4):
            sum(losses()).backward()
            optimizer.step()
            optimizer.zero_grad()
        left = losses()
    """
    assert [one for one in record(scripts, tmp_path, body) if one.kind == "growth"] == []
