"""Running statistics that activation checkpointing updates twice are told for information, with and without reentry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import python_processes
from tests.capture.conftest import clean_environment
from tests.capture.test_deaths import COMMAND

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

PROGRAM = """
import sys, torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer, self.norm = nn.Linear(8, width), nn.BatchNorm1d(width)
    def forward(self, x):
        return self.norm(self.layer(x)).relu()

blocks = Block(8), Block(16)
for block in blocks:
    block.compile()
    block.train(sys.argv[1] != "eval")
for _ in range(4):
    x = torch.randn(4, 8, requires_grad=True)
    for block in blocks:
        y = block(x) if sys.argv[1] == "plain" else checkpoint(block, x, use_reentrant=sys.argv[1] == "reentrant")
        y.sum().backward()
"""


GUARDED = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("last", torch.zeros(4, 8))
    def forward(self, x):
        if torch.is_grad_enabled():
            self.seen += 1
        y = self.layer(x).relu()
        self.last.copy_(y.detach())  # the recomputation writes the same
        return y

blocks = nn.ModuleList(Block() for _ in range(4))
for block in blocks:
    block.compile()
for _ in range(4):
    x = torch.randn(4, 8, requires_grad=True)
    for number, block in enumerate(blocks):
        x = checkpoint(block, x, use_reentrant=True) if number in (1, 2) else block(x)
    x.sum().backward()
assert [block.seen.item() for block in blocks] == [4, 4, 4, 4]
"""


def updated_twice(folder: Path, program: str, *arguments: str) -> list[tuple[str, str, str]]:
    """Return the severities, the titles and the proofs of the findings about a program."""
    folder.joinpath("block.py").write_text(program, "utf-8")
    command = [*COMMAND, "run", "-o", folder / "trace", folder / "block.py", *arguments]
    python_processes.run(command, env=clean_environment(folder / "cache"), check=True)
    answer = python_processes.run([*COMMAND, "summary", folder / "trace", "--json"], check=True)
    found = json.loads(answer.stdout)["findings"]
    return [(one["severity"], one["title"], *one["proof"]) for one in found if one["kind"] == "repeated_update"]


@pytest.mark.parametrize(
    ("how", "is_told"), [("reentrant", True), ("not reentrant", True), ("plain", False), ("eval", False)]
)
def test_running_statistics(tmp_path: Path, how: str, is_told: bool) -> None:
    found = updated_twice(tmp_path, PROGRAM, how)
    names = "self.norm.num_batches_tracked, self.norm.running_mean and self.norm.running_var"
    assert [title.partition(" are updated twice (block.py:11)")[0] for _, title, _ in found] == [names] * is_told
    for severity, _, proof in found:
        assert severity == "info"
        assert proof.startswith("Activation checkpointing runs the forward passes of 2 graphs twice in 4 steps.")


def test_blocks_that_count_only_with_gradients_are_right(tmp_path: Path) -> None:
    """Some run checkpointed and others plainly, by the same graphs: each counter is updated once."""
    assert updated_twice(tmp_path, GUARDED) == []
