"""A checkpoint in eager code around all blocks that are compiled one by one is told, and other checkpoints are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import python_processes
from tests.capture.conftest import clean_environment
from tests.capture.test_deaths import COMMAND

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

PROGRAM = """
import sys, torch
from torch import nn
from torch.utils.checkpoint import checkpoint

how, is_reentrant = sys.argv[1], sys.argv[2] == "reentrant"

@torch.compile
def product(x, weight):
    return torch.sin(x) @ weight

class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(weight)
        return product(x, weight)
    @staticmethod
    def backward(ctx, gradient):
        return product(gradient, ctx.saved_tensors[0].t()), None

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 512), nn.Linear(512, 64)
    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(6))
        for block in self.blocks:
            block.compile()
    def run(self, x, blocks):
        for block in blocks:
            x = block(x)
        return x
    def forward(self, x):
        size = {"whole": 6, "pairs": 2, "each": 1, "plain": 6}[how]
        for first in range(0, 6, size):
            blocks = self.blocks[first : first + size]
            if how == "plain":
                x = self.run(x, blocks)
            else:
                x = checkpoint(self.run, x, blocks, use_reentrant=is_reentrant)
        return x

def penalty():
    weights = [torch.randn(512, 512, requires_grad=True) for _ in range(6)]
    x = start = torch.randn(512, 512, requires_grad=True)
    for weight in weights:
        x = Product.apply(x, weight)
    (gradient,) = torch.autograd.grad(x.sum(), start, create_graph=True)
    gradient.square().mean().backward()

if how != "penalty":
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(4):
    if how == "penalty":
        penalty()
        continue
    for _ in range(2):
        model(torch.randn(512, 64, requires_grad=True)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def found(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    folder.joinpath("blocks.py").write_text(PROGRAM, "utf-8")
    command = [*COMMAND, "run", "-o", folder / "trace", folder / "blocks.py", *arguments]
    python_processes.run(command, env=clean_environment(folder / "cache"), check=True)
    answer = python_processes.run([*COMMAND, "summary", folder / "trace", "--json"], check=True)
    return [one for one in json.loads(answer.stdout)["findings"] if one["kind"] == "recomputed_together"]


@pytest.mark.parametrize("reentrant", ["reentrant", "not reentrant"])
def test_one_checkpoint_around_all_blocks(tmp_path: Path, reentrant: str) -> None:
    (one,) = found(tmp_path, "whole", reentrant)
    assert one["severity"] == "warning"
    assert one["title"].startswith("6 compiled calls (blocks.py:36) run again together in the backward pass")
    assert one["evidence"]["in_steps"] == 4
    assert one["evidence"]["share_of_peak"] > 0.5


@pytest.mark.parametrize(
    "arguments",
    [
        ("each", "reentrant"),
        ("each", "not reentrant"),
        ("pairs", "not reentrant"),
        ("plain", "not checkpointed"),
        ("penalty", "of higher order"),
    ],
)
def test_other_checkpoints(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert found(tmp_path, *arguments) == []
