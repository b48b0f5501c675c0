"""Red zones around buffers on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import stepscope
from stepscope.tracer.schema.gaps import Failure
from stepscope.tracer.schema.memory import RedZoneWrite
from tests.tracer import logs

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("default"),
]

if torch.cuda.is_available():
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator]
    def doubled(source, target, size, MASKED: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(source + at, mask=at < size, other=0.0)
        if MASKED:
            tl.store(target + at, 2 * value, mask=at < size)
        else:
            tl.store(target + at, 2 * value)


def run(masked: bool, mode: str | None = None) -> torch.Tensor:
    torch._dynamo.reset()

    @torch.compile(mode=mode)
    def step(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        doubled[(1,)](x, out, x.numel(), MASKED=masked, BLOCK=1024)
        return (out @ out.t()).relu() + out.sum()

    with torch.no_grad():
        for _ in range(3):
            result = step(torch.ones(30, 30, device="cuda")).clone()
    return result


def written(folder: Path) -> list[dict[str, Any]]:
    (log,) = folder.glob("*.log")
    found = logs.read(log)
    assert not found[Failure.KIND]
    return found[RedZoneWrite.KIND]


@pytest.mark.parametrize("masked", [True, False])
def test_a_kernel_without_a_mask_is_named(masked: bool, tmp_path: Path) -> None:
    with stepscope.trace(tmp_path, red_zones=True):
        result = run(masked)
    assert torch.equal(result, run(masked))
    found = written(tmp_path)
    assert len(found) == (not masked)
    for one in found:
        assert (one["side"], one["distance"], one["changed_bytes"]) == ("after", 0, 4 * (1024 - 900))


def test_graphs_that_run_as_cuda_graphs_are_left_alone(tmp_path: Path) -> None:
    with stepscope.trace(tmp_path, red_zones=True):
        result = run(masked=True, mode="reduce-overhead")
    assert torch.equal(result, run(masked=True))
    assert not written(tmp_path)
