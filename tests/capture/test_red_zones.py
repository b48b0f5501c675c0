"""Launches that write next to buffers which lie between red zones, and programs that write no such bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.scripts import Scripts
from tests.capture.test_verdicts import findings, record

pytestmark = pytest.mark.slow


STRAY = """
import ctypes

@torch.library.custom_op("red_zones::fill", mutates_args={"out"})
def fill(out: torch.Tensor, start: int, count: int) -> None:
    out.fill_(1.0)
    ctypes.memset(out.data_ptr() + start, 7, count)

@torch.compile
def filled(x, start, count):
    out = torch.empty_like(x)
    product = (x @ x).relu()
    fill(out, start, count)
    return (out * product).sum()

with stepscope.trace(FOLDER, red_zones=RED_ZONES):
    for _ in range(3):
        filled(torch.ones(16, 16), START, COUNT)
"""
TRAINED = """
torch.manual_seed(0)
layers = torch.nn.Linear(8, 9), torch.nn.Dropout(), torch.nn.Linear(9, 4), torch.nn.LayerNorm(4)
net = torch.nn.Sequential(*layers).double()
optimizer = torch.optim.AdamW(net.parameters())

@torch.compile
def halves(x):
    out = net(x)
    return out, out[:, 2:]

with stepscope.trace(FOLDER, level="values", verify_before=True, red_zones=RED_ZONES):
    for step in range(3):
        torch.manual_seed(step)
        out, half = halves(torch.ones(5, 8, dtype=torch.double))
        half.mul_(2)
        out.square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
print([parameter.sum().item().hex() for parameter in net.parameters()], half.storage_offset(), half._base is out)
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Scripts:
    return Scripts(tmp_path_factory.mktemp("scripts"))


@pytest.mark.parametrize(
    ("start", "count", "told", "proof"),
    [
        (16 * 16 * 4, 24, "wrote 24 bytes past the end of buf0", []),
        (-8, 5, "wrote 5 bytes before the beginning of buf0", ["The nearest of these bytes is 3 bytes away"]),
        (16 * 16 * 4, 4096, "wrote 4,096 bytes past the end of buf0", ["These are all bytes of the red zone"]),
        (0, 16 * 16 * 4, None, []),
    ],
    ids=["after", "before", "the whole zone", "within"],
)
def test_a_write_next_to_a_buffer_is_named(
    scripts: Scripts, tmp_path: Path, start: int, count: int, told: str | None, proof: list[str]
) -> None:
    body = STRAY.replace("START", str(start)).replace("COUNT", str(count)).replace("RED_ZONES", "True")
    found = record(scripts, tmp_path, body)
    assert [one.kind for one in found] == ["red_zone_write"] * (told is not None)
    for one in found:
        assert one.title.startswith("red_zones.fill (")
        assert f"{told}, in step 0" in one.title
        assert one.severity == "critical"
        assert all(line.startswith(start) for line, start in zip(one.proof, proof, strict=True))


def test_a_training_with_red_zones_is_bit_equal_to_one_without(scripts: Scripts, tmp_path: Path) -> None:
    said = []
    for with_zones in (True, False):
        folder = tmp_path / str(with_zones)
        done = scripts.run(folder, TRAINED.replace("RED_ZONES", str(with_zones)))
        assert done.returncode == 0, done.stderr
        assert findings(folder) == []
        said.append(done.stdout)
    assert said[0] == said[1]
