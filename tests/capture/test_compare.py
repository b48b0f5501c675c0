"""Compares recorded runs of one program: the same again, with another constant, and with another weight."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.viewer.compare.compare import compare, wanted
from stepscope.viewer.compare.rows import Comparison
from tests.capture.scripts import Scripts

pytestmark = pytest.mark.slow


MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        hidden = torch.relu(self.up(x)) * {constant}
        return torch.softmax(self.down(hidden), -1)
"""
BODY = """
    import importlib.util, torch, stepscope
    spec = importlib.util.spec_from_file_location("net", {path!r})
    net = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(net)
    torch.manual_seed(0)
    model = net.Net()
    with torch.no_grad():
        model.down.weight[2, 3] += {more}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = torch.compile(model)
    with stepscope.trace(FOLDER, level="values"):
        for _ in range(2):
            run(torch.ones(4, 8)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("compared")
    scripts, found = Scripts(folder), {}
    for name, constant, more in (("a", 1.5, 0), ("again", 1.5, 0), ("constant", 1.75, 0), ("weight", 1.5, 0.5)):
        path = folder / name / "net.py"
        path.parent.mkdir()
        path.write_text(MODEL.format(constant=constant))
        found[name] = folder / name / "trace"
        done = scripts.run(found[name], BODY.format(path=str(path), more=more))
        assert done.returncode == 0, done.stderr
    return found


@pytest.fixture
def against(runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Comparison]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return {name: compare(wanted(str(runs["a"])), wanted(str(runs[name]))) for name in ("again", "constant", "weight")}


def test_the_first_difference_of_recorded_runs(against: dict[str, Comparison]) -> None:
    again = against["again"]
    assert again.verdict == "no difference"
    assert again.compared.value_rows > 20
    assert again.without_partner == []

    constant = against["constant"]
    assert constant.verdict == "launch"
    place = constant.launches[0].place
    assert place.left_step == 0
    assert place.source is not None
    assert "* 1.5" in place.source.code
    changed = [line for change in constant.kernels for line in change.lines]
    assert any("1.5" in left and "1.75" in right for left, right in changed)

    weight = against["weight"]
    assert weight.verdict == "input"
    assert weight.inputs[0].tensor.program_name == "self.down.weight"
    assert weight.inputs[0].place.left_step == 0
    assert all(pair.is_same_code for pair in weight.graphs)
