"""A checkpointed function with several random operators, whose seeds Inductor draws in one launch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import python_processes
from tests.capture.conftest import clean_environment
from tests.capture.test_deaths import COMMAND

pytestmark = pytest.mark.slow


PROGRAM = """
import torch
from torch.utils.checkpoint import checkpoint


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.drop = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8), torch.nn.Dropout(0.2)

    def forward(self, x):
        return x + self.drop(self.down(torch.relu(self.drop(self.up(x)))))


torch.manual_seed(0)
block = torch.compile(Block())
for _ in range(2):
    x = torch.randn(4, 8, requires_grad=True)
    y = checkpoint(block, x, use_reentrant=False, preserve_rng_state={preserved})
    y.square().mean().backward()
"""


def found(folder: Path, cache: Path, preserved: bool) -> list[dict[str, object]]:
    folder.mkdir()
    program = folder / "seeds.py"
    program.write_text(PROGRAM.format(preserved=preserved))
    command = [*COMMAND, "run", "--level", "values", "-o", folder / "log", "--", program]
    run = python_processes.run(command, env=clean_environment(cache), timeout=500)
    assert run.returncode == 0, run.stderr[-3000:]
    answer = python_processes.run([*COMMAND, "summary", folder / "log", "--json"], check=True)
    return [one for one in json.loads(answer.stdout)["findings"] if one["kind"] == "other_recomputation"]


@pytest.mark.filterwarnings("ignore")
def test_the_operators_that_use_the_seeds_and_the_line_of_the_checkpoint_are_named(tmp_path: Path) -> None:
    (finding,) = found(tmp_path / "sick", tmp_path / "cache", preserved=False)
    title, proof, source = finding["title"], finding["proof"], finding["source"]
    assert isinstance(title, str)
    assert ", the seeds of dropout (seeds.py:12), with values that differ from those of the forward pass" in title
    assert isinstance(source, dict)
    assert source["line"] == 12
    assert isinstance(proof, list)
    assert proof[0].startswith("The program calls this function at seeds.py:19: y = checkpoint(block, x, ")
    assert proof[1].endswith(" leave this argument out.")
    assert not any("largest magnitude" in said for said in proof)
    assert found(tmp_path / "healthy", tmp_path / "cache", preserved=True) == []
