"""Weights of which freezing made constants, and which change after the compile."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.viewer.overview.queries.runs import list_runs
from stepscope.viewer.store.open import open_trace
from tests.capture.scripts import Scripts
from tests.capture.test_verdicts import record

pytestmark = pytest.mark.slow


BODY = """
import torch._inductor.config
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(16, 16)])
        self.bias = torch.nn.Parameter(torch.zeros(16))
    def forward(self, x):
        return self.blocks[0](x).relu() + self.bias
net = Net().eval()
torch._inductor.config.freezing = True
with stepscope.trace(FOLDER), torch.no_grad():
    compiled = torch.compile(net)
    for step in range(5):
        if step == 3:
            CHANGE
        before, after = compiled(torch.ones(2, 16)), net(torch.ones(2, 16))
assert torch.allclose(before, after, atol=1e-4) is not STALE
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Scripts:
    return Scripts(tmp_path_factory.mktemp("scripts"))


@pytest.mark.parametrize(
    ("change", "severity", "told"),
    [
        ("net.blocks[0].weight.data.add_(1)", "warning", "is no longer what it was at the compile"),
        ("net.bias.add_(1)", None, ""),
        ("pass", None, ""),
    ],
    ids=["data", "used as it is", "nothing"],
)
def test_a_frozen_weight_that_changes(
    scripts: Scripts, tmp_path: Path, change: str, severity: str | None, told: str
) -> None:
    body = BODY.replace("CHANGE", change).replace("STALE", str(severity is not None))
    found = [one for one in record(scripts, tmp_path, body) if one.kind == "frozen_weight"]
    assert [one.severity for one in found] == [severity] * (severity is not None)
    for one in found:
        assert one.title.startswith("The frozen weight self.blocks.0.weight of graph 0 (")
        assert told in one.title


def test_a_weight_that_can_no_longer_be_read_leaves_the_end_of_the_log(scripts: Scripts, tmp_path: Path) -> None:
    fails = """
def fail(weight):
    raise RuntimeError("the device is gone")
import stepscope.tracer.inductor.frozen_weights
"""
    change = "stepscope.tracer.inductor.frozen_weights._total = fail"
    ended = scripts.run(tmp_path / "log", fails + BODY.replace("CHANGE", change).replace("STALE", "False"))
    assert ended.returncode == 0, ended.stderr
    assert "the recorder's detach hook failed (RuntimeError: the device is gone)" in ended.stderr
    with open_trace(tmp_path / "log", index_dir=tmp_path / "index") as trace:
        assert [run.complete for run in list_runs(trace)] == [True]
