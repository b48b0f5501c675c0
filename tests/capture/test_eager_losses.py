"""Losses outside of compiled code that get what they do not expect are found, and others are not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stepscope.viewer.findings import all_findings
from stepscope.viewer.graphs.queries.loss_paths import eager_losses
from stepscope.viewer.store.open import open_trace
from tests import python_processes
from tests.capture.conftest import clean_environment

pytestmark = pytest.mark.slow


N = 12
BEGIN = f"""\
import torch, stepscope, sys
import torch.nn.functional as F
from torch import nn

class Probabilities(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)
    def forward(self, x):
        return self.layer(x).softmax(dim=-1)

x, y, classes = torch.randn({N}, 8), torch.randn({N}), torch.arange({N}) % 3
one_hot = F.one_hot(classes, 3).float()
predict, classify = torch.compile(nn.Linear(8, 1)), torch.compile(nn.Linear(8, 3))
probable = torch.compile(Probabilities())
head = nn.Linear(3, 1)
other = torch.compile(nn.Sequential(nn.Linear(8, 3), nn.LogSoftmax(dim=1)))
optimizer = torch.optim.SGD(head.parameters())
recorder = stepscope.trace(sys.argv[1])
recorder.start()
"""
WRONG = {
    "loss = (predict(x) - y).pow(2).mean()": "all pairs: - of linear",
    "loss = ((y - predict(x)) ** 2).sum() / 12": "all pairs: - of linear",
    "loss = F.mse_loss(predict(x), y)": "all pairs: mse_loss of linear",
    "loss = F.smooth_l1_loss(predict(x).double(), y.double())": "all pairs: smooth_l1_loss of linear",
    "loss = F.huber_loss(predict(x), y, reduction='none').mean()": "all pairs: huber_loss of linear",
    "loss = F.l1_loss(predict(x), y)": "all pairs: - of linear",
    "loss = F.cross_entropy(probable(x), classes)": "probabilities: cross_entropy of softmax",
    "loss = F.cross_entropy(classify(x).softmax(1), classes)": "probabilities: cross_entropy of softmax",
    "loss = F.binary_cross_entropy_with_logits(classify(x).sigmoid(), one_hot)": (
        "probabilities: binary_cross_entropy_with_logits of sigmoid"
    ),
    "loss = F.nll_loss(probable(x), classes)": "no logarithm: nll_loss of softmax",
    "loss = F.nll_loss(classify(x), classes)": "no logarithm: nll_loss of linear",
    "loss = F.nll_loss(F.softmax(classify(x), dim=1), classes)": "no logarithm: nll_loss of softmax",
}
RIGHT = [
    "loss = (predict(x).squeeze(1) - y).pow(2).mean()",
    "loss = (predict(x) - y[:, None]).pow(2).mean()",
    "loss = (predict(x) - y.mean()).pow(2).mean()",
    "p = predict(x); loss = (p - p.T).abs().mean()",
    "loss = ((predict(x) - y).pow(2) * (x @ x.T)).mean()",
    "loss = (predict(x) * y).mean()",
    "loss = (predict(x) - y).abs().sum(1).min()",
    "p = predict(x); loss = (p - y).abs().mean() - 0.5 * (p - p.T).abs().mean()",
    "o = other(x); p = probable(x); loss = F.nll_loss(o, classes) + (p * p).sum()",
    "loss = F.cross_entropy(classify(x), classes)",
    "loss = F.nll_loss(classify(x).log_softmax(1), classes)",
    "loss = F.nll_loss(probable(x).log(), classes)",
    "loss = F.binary_cross_entropy(classify(x).sigmoid(), one_hot)",
    "loss = F.nll_loss(classify(x), classes, reduction='none').sum()",
    "loss = F.cross_entropy(probable(x) / 0.05, classes)",
    "loss = F.mse_loss(head(classify(x)), y[:, None])",
]


def found(folder: Path, losses: list[str]) -> list[tuple[tuple[int, int] | None, str]]:
    """Record a program of these losses; return the loss, its line, and the mistake of what is found."""
    program = folder / "program.py"
    text = BEGIN + "".join(f"{loss}\noptimizer.zero_grad()\nloss.backward()\n" for loss in losses) + "recorder.stop()\n"
    program.write_text(text, "utf-8")
    command = [sys.executable, program, folder / "logs"]
    python_processes.run(command, env=clean_environment(folder / "cache"), timeout=300, check=True)
    with open_trace(folder / "logs", index_dir=folder / "index") as trace:
        told = [one for one in all_findings(trace) if one.kind == "loss_input"]
        assert all(one.severity == "warning" for one in told)
        mistakes = [*eager_losses(trace)]
    assert len(told) == len(mistakes)
    first = BEGIN.count("\n") + 1
    parts = [divmod(one.source.line - first, 3) if one.source else None for one in mistakes]
    return [(part, f"{one.mistake}: {one.loss} of {one.given}") for part, one in zip(parts, mistakes, strict=True)]


@pytest.mark.filterwarnings("ignore")
def test_a_loss_gets_what_it_does_not_expect(tmp_path: Path) -> None:
    assert found(tmp_path, [*WRONG]) == [((number, 0), mistake) for number, mistake in enumerate(WRONG.values())]


def test_a_loss_gets_what_it_expects(tmp_path: Path) -> None:
    assert found(tmp_path, RIGHT) == []
