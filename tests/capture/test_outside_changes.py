"""Inputs of graphs that code outside of the graphs changes in place, and programs in which that is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.scripts import Scripts
from tests.capture.test_verdicts import record

pytestmark = pytest.mark.slow


MASKED = """
import numpy
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scratch = numpy.ones(16, dtype=numpy.float32)
        self.register_buffer("mask", torch.from_numpy(self.scratch))
        self.register_buffer("seen", torch.zeros(16))
    def forward(self, x):
        self.seen += x.sum(0)
        return x * self.mask + self.seen
net, given = Net(), torch.empty(4, 16)
compiled = torch.compile(net)
with stepscope.trace(FOLDER, level="values"):
    for step in range(6):
        given.copy_(torch.rand(4, 16))
        if CHANGES and step == 4:
            net.scratch[:8] = 7
        compiled(given)
"""
PREPARED = """
@torch.compile
def model(data):
    return (data * 2).sum()
data = torch.rand(8, 16)
with stepscope.trace(FOLDER, level="values"):
    for step in range(STEPS):
        part = PART
        CHANGE
        model(part)
"""
PRUNED = """
net = torch.nn.Linear(16, 16)
compiled = torch.compile(net)
with stepscope.trace(FOLDER, level="values"), torch.no_grad():
    for step in range(6):
        if CHANGES and step == 4:
            net.weight.numpy()[:8] = 0
        compiled(torch.rand(4, 16))
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Scripts:
    return Scripts(tmp_path_factory.mktemp("scripts"))


@pytest.mark.parametrize("changes", [True, False])
def test_a_buffer_that_an_array_changes(scripts: Scripts, tmp_path: Path, changes: bool) -> None:
    """The input that is copied into the same memory each time, and the state that the graph adds to, are not told."""
    found = record(scripts, tmp_path, MASKED.replace("CHANGES", str(changes)))
    assert [(one.kind, one.severity, one.step) for one in found] == [("changed_outside", "info", 4)] * changes
    assert all(one.title.startswith("self.mask (") and "step 3 and launch" in one.title for one in found)


@pytest.mark.parametrize("changes", [True, False])
def test_a_parameter_that_an_array_changes(scripts: Scripts, tmp_path: Path, changes: bool) -> None:
    found = record(scripts, tmp_path, PRUNED.replace("CHANGES", str(changes)))
    assert [(one.kind, one.severity, one.step) for one in found] == [("changed_outside", "info", 4)] * changes
    assert all("weight (" in one.title for one in found)


@pytest.mark.parametrize(
    ("part", "steps", "change", "told"),
    [
        ("data[4 * (step % 2):][:4]", 8, "part.sub_(0.5).mul_(4)", ("warning", "4")),
        ("data", 6, "part.mul_(0.9)", ("info", "0.9")),
        ("data", 6, "part.div_(255)", ("warning", "0.00392")),
        ("data[4 * (step % 2):][:4]", 8, "pass", None),
    ],
    ids=["in rounds", "decay", "units", "rounds"],
)
def test_data_that_are_transformed_again_in_each_step(
    scripts: Scripts, tmp_path: Path, part: str, steps: int, change: str, told: tuple[str, str] | None
) -> None:
    body = PREPARED.replace("PART", part).replace("STEPS", str(steps)).replace("CHANGE", change)
    found = record(scripts, tmp_path, body)
    assert [(one.kind, one.severity) for one in found] == ([("changed_outside", told[0])] if told else [])
    for one in found:
        assert one.title.startswith("Code outside of the graphs multiplies ")
        assert told is not None
        assert f" by {told[1]} in place between the calls" in one.title


DECAYED = """
net = torch.nn.Linear(16, 16, bias=False)
compiled, average = torch.compile(net), torch.compile(lambda weight: weight.abs().mean())
optimizer = torch.optim.SGD(net.parameters(), lr=1.0, weight_decay=0.1)
with stepscope.trace(FOLDER, level="values"), torch.no_grad():
    for step in range(6):
        if USES_IT:
            compiled(torch.rand(4, 16))
        average(net.weight.detach())
        net.weight.grad = torch.zeros(16, 16)
        optimizer.step()
"""


@pytest.mark.parametrize("uses_it", [True, False])
def test_a_parameter_that_is_handed_on_is_still_one(scripts: Scripts, tmp_path: Path, uses_it: bool) -> None:
    """An optimizer writes it; it is known to be a parameter if a graph reads it as one."""
    found = record(scripts, tmp_path, DECAYED.replace("USES_IT", str(uses_it)))
    assert [(one.kind, one.severity) for one in found] == [("changed_outside", "info")] * (not uses_it)
