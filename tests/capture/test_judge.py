"""`stepscope run --judge`: a wrong kernel is named, its reproducer is wrong in the same way, and the program computes
the same as without the judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import python_processes
from tests.capture.conftest import clean_environment
from tests.capture.test_deaths import COMMAND
from tests.tracer.logs import read

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]
PROGRAM = "tests.capture.judged_program"


def judged(what: str, folder: Path, name: str | None = None) -> tuple[str, dict[str, Any]]:
    """Return what the judged program printed, and its findings by kind; its trace has the name of the program."""
    trace = folder / (name or what)
    command = [*COMMAND, "run", "--judge", "first", "-o", trace, "--", "-m", PROGRAM, what]
    run = python_processes.run(command, env=clean_environment(folder / f"{what}_cache"), timeout=500)
    assert run.returncode == 0, run.stderr[-3000:]
    answer = python_processes.run([*COMMAND, "summary", trace, "--json"], check=True)
    summary = json.loads(answer.stdout)
    assert summary["counts"]["judged_launches"] == 8
    return run.stdout.splitlines()[0], {one["kind"]: one for one in summary["findings"]}


def test_a_right_compiler_is_not_accused_and_computes_the_same(tmp_path: Path) -> None:
    printed, findings = judged("healthy", tmp_path)
    assert findings == {}
    plain = python_processes.run(
        [COMMAND[0], "-m", PROGRAM, "healthy"],
        env=clean_environment(tmp_path / "healthy_cache"),
        timeout=500,
        check=True,
    )
    assert printed == plain.stdout.strip()


def test_a_wrong_kernel_is_named_and_repeated(tmp_path: Path) -> None:
    _, findings = judged("wrong", tmp_path)
    finding = findings["wrong_kernel"]
    assert set(findings) == {"wrong_kernel"}
    assert "relu" in finding["kernel"]
    assert "Sequential.1 (ReLU)" in finding["source"]["code"]
    assert finding["evidence"]["compiled"] != finding["evidence"]["float64"] == 0.0

    script = tmp_path / "repro.py"
    python_processes.run([*COMMAND, "repro", tmp_path / "wrong", "-o", script], check=True)
    again = python_processes.run([COMMAND[0], script], env=clean_environment(tmp_path / "again"), timeout=300)
    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stdout.splitlines()[-1] == "verdict: wrong in the same way"
    assert "float64 computes 0 from the same inputs" in again.stdout
    assert "made up" not in again.stdout


def test_a_cache_that_was_filled_without_stepscope_is_judged(tmp_path: Path) -> None:
    environment = clean_environment(tmp_path / "healthy_cache")
    python_processes.run([COMMAND[0], "-m", PROGRAM, "healthy"], env=environment, timeout=500, check=True)
    _, findings = judged("healthy", tmp_path)
    assert findings == {}
    _, again = judged("healthy", tmp_path, "again")
    assert again == {}
    (log,) = (tmp_path / "again").glob("*.log")
    assert {graph["cached"] for graph in read(log)["graph"]} == {True}


LOSSES = """
import torch
from torch import nn
torch.manual_seed(0)

@torch.compile
def loss(logits, target):
    return nn.functional.cross_entropy(logits[:, :-1].reshape(-1, 128).float(), target[:, 1:].reshape(-1))

net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4))
compiled = torch.compile(net)

@torch.compile
def scores(value):
    start = torch.full((6,), -1e4)
    start[0] = 0
    return torch.logsumexp(value + start, 1).mean()

for _ in range(5):
    with torch.no_grad():
        loss(torch.randn(4, 24, 128, dtype=torch.bfloat16), torch.randint(0, 128, (4, 24)))
    (compiled(torch.randn(4, 3, 8, 8)).square().mean() + scores(torch.randn(4, 6, requires_grad=True))).backward()
"""


def test_the_judge_accuses_no_healthy_loss_and_holds_no_tensor(tmp_path: Path) -> None:
    """A kernel keeps the logarithm to itself in the memory of its argument, and some launches cannot be judged."""
    (tmp_path / "losses.py").write_text(LOSSES)
    command = [*COMMAND, "run", "--judge", "last", "-o", tmp_path / "trace", "--", tmp_path / "losses.py"]
    run = python_processes.run(command, env=clean_environment(tmp_path / "cache"), timeout=500)
    assert run.returncode == 0, run.stderr[-3000:]
    answer = python_processes.run([*COMMAND, "summary", tmp_path / "trace", "--json"], check=True)
    summary = json.loads(answer.stdout)
    assert summary["counts"]["judged_launches"] > 0
    found = [(one["kind"], one["title"]) for one in summary["findings"]]
    assert [one for one in found if one[0] in ("wrong_kernel", "lifetime_mismatch", "reference_cycle")] == []
