"""Reproducers of launches on a CUDA device, run in processes of their own.

python -m pytest -m gpu tests/gpu/test_repro.py
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import stepscope
from stepscope.viewer.repro.write import write_reproducer
from stepscope.viewer.store import sql
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.gpu.kernels import double

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("default"),
]


def model(q: torch.Tensor, k: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.softmax(torch.mm(q, k) * 0.125, -1), double(q), k[index] + 1


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trace]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    q, k = (torch.randn(*size, device="cuda").half() * 60 for size in ((256, 64), (64, 256)))
    with stepscope.trace(tmp_path_factory.mktemp("save"), level="save") as recorder:
        torch.compile(model)(q, k, torch.tensor([3, 60, 5], device="cuda"))
        torch.cuda.synchronize()
        stepscope.step()
    assert recorder.path is not None
    with open_trace(recorder.path) as opened:
        yield opened


@pytest.mark.parametrize("kernel", ["triton%softmax%", "extern_kernels.mm", "double_kernel%", "triton%index%"])
def test_a_launch_shows_the_same_statistics_and_is_timed(trace: Trace, kernel: str, tmp_path: Path) -> None:
    launch = sql.number(trace, "SELECT min(launch) FROM launches JOIN sites USING (site) WHERE kernel LIKE ?", [kernel])
    out = tmp_path / "repro.py"
    write_reproducer(trace, launch, out, embed_bytes=1 << 20)
    command = [sys.executable, str(out), "--bench", "--runs", "30"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    print(done.stdout)  # noqa: T201  (figures for whoever runs this with -s)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdict: same\n" in done.stdout
    assert ("configuration of the program: {" in done.stdout) == (kernel != "extern_kernels.mm")
    assert "tuned anew" not in done.stdout
    times = re.search(
        r"30 runs, .* device time of profiler events\n  median ([\d.]+) us   p10 ([\d.]+) us", done.stdout
    )
    assert times is not None
    assert 0 < float(times[2]) <= float(times[1]) < 1000


def test_a_configuration_that_coordinate_descent_had_found(tmp_path: Path) -> None:
    """It is none of the candidates that the kernel has."""
    torch._dynamo.reset()
    x = torch.randn(1000, 3000, device="cuda")
    with stepscope.trace(tmp_path) as recorder:
        compiled = torch.compile(lambda x: x.exp().sum(1), options={"coordinate_descent_tuning": True})
        compiled(x)
        torch.cuda.synchronize()
        stepscope.step()
    assert recorder.path is not None
    out = tmp_path / "repro.py"
    with open_trace(recorder.path) as opened:
        told = sql.row(opened, "SELECT config FROM tuned_kernels JOIN calls USING (graph)")
        write_reproducer(opened, 0, out, embed_bytes=1 << 20)
    assert told is not None
    done = subprocess.run([sys.executable, str(out)], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    print(told, done.stdout)  # noqa: T201
    assert "configuration of the program: {" in done.stdout, done.stdout + done.stderr
    assert "tuned anew" not in done.stdout
