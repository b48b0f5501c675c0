"""Running statistics that activation checkpointing updates twice are told for information, with and without reentry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import python_processes
from tests.capture.conftest import clean_environment
from tests.capture.test_deaths import COMMAND

pytestmark = pytest.mark.filterwarnings("ignore")

PROGRAM = """
import sys, torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)
    def forward(self, x):
        return self.norm(self.layer(x)).relu()

block = Block()
block.compile()
block.train(sys.argv[1] != "eval")
for _ in range(4):
    x = torch.randn(4, 8, requires_grad=True)
    y = block(x) if sys.argv[1] == "plain" else checkpoint(block, x, use_reentrant=sys.argv[1] == "reentrant")
    y.sum().backward()
"""


@pytest.mark.parametrize(
    ("how", "is_told"), [("reentrant", True), ("not reentrant", True), ("plain", False), ("eval", False)]
)
def test_running_statistics(tmp_path: Path, how: str, is_told: bool) -> None:
    tmp_path.joinpath("block.py").write_text(PROGRAM, "utf-8")
    command = [*COMMAND, "run", "-o", tmp_path / "trace", tmp_path / "block.py", how]
    python_processes.run(command, env=clean_environment(tmp_path / "cache"), check=True)
    answer = python_processes.run([*COMMAND, "summary", tmp_path / "trace", "--json"], check=True)
    found = json.loads(answer.stdout)["findings"]
    names = "self.norm.num_batches_tracked, self.norm.running_mean and self.norm.running_var"
    titles = [one["title"] for one in found if one["kind"] == "repeated_update"]
    assert [title.partition(" are updated twice (block.py:11)")[0] for title in titles] == [names] * is_told
    assert {one["severity"] for one in found} <= {"info"}
