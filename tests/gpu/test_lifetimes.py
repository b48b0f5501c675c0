"""Storages on a CUDA device, against what its allocator says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import stepscope
from stepscope.tracer.demo import TransformerBlock
from stepscope.tracer.schema.gaps import Failure
from stepscope.tracer.schema.memory import LifetimeLayout, LifetimeMismatch, Lifetimes
from tests.tracer import logs

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("default"),
]
BLOCK_BYTES = 512
"""The allocator rounds up to it (c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize)."""


def record(folder: Path, run: Callable[[], object], **settings: Any) -> dict[str, list[Any]]:
    torch._dynamo.reset()
    with stepscope.trace(folder, **settings) as recorder:
        run()
        torch.cuda.synchronize()
    assert recorder.path is not None
    found = logs.read(recorder.path)
    assert not found[Failure.KIND]
    return found


def rounded(size: int) -> int:
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


def changes(layout: dict[str, Any]) -> dict[int, int]:
    """Bytes of the allocator by position; what a launch returns is there once it has run."""
    found: dict[int, int] = {}
    for kind, size, born in zip(layout["kind"], layout["storage_bytes"], layout["born"], strict=True):
        if kind != "input":
            place = born + (kind == "returned")
            found[place] = found.get(place, 0) + rounded(size)
    for storage, at in zip(layout["dead"], layout["dead_at"], strict=True):
        found[at] = found.get(at, 0) - rounded(layout["storage_bytes"][storage])
    return found


def curves(records: dict[str, list[Any]]) -> list[tuple[dict[str, Any], list[tuple[int, int]]]]:
    """The layout of each call, and what the allocator said at its positions."""
    layouts = {layout["layout"]: layout for layout in records[LifetimeLayout.KIND]}
    asked: dict[int, list[tuple[int, int]]] = {}
    followed: dict[int, int] = {}
    for batch in records[Lifetimes.KIND]:
        followed |= dict(zip(batch["call"], batch["layout"], strict=True))
        curve = batch["allocator"]
        for call, position, size in zip(curve["call"], curve["position"], curve["allocated_bytes"], strict=True):
            asked.setdefault(call, []).append((position, size))
    return [(layouts[followed[call]], points) for call, points in asked.items() if call in followed]


def test_each_position_agrees_with_the_allocator(tmp_path: Path) -> None:
    def chain(a: torch.Tensor) -> torch.Tensor:
        b = a @ a
        c = (b.sin() @ a).cos()
        values, _ = c.sort(0)
        return values @ b

    def run() -> None:
        compiled, a = torch.compile(chain), torch.randn(256, 256, device="cuda")
        for _ in range(4):
            compiled(a)

    found = curves(record(tmp_path, run))
    assert len(found) == 4
    assert any(len(points) > 2 for _, points in found)
    for layout, points in found[1:]:  # the first call allocates the workspace of cuBLAS too
        by_position = changes(layout)
        begin = points[0][1]
        for position, size in dict(points[1:]).items():  # the last answer at each position
            expected = sum(change for at, change in by_position.items() if at <= position)
            assert size - begin == expected, (position, layout["name"])


def test_whole_calls_of_a_training_agree_with_the_allocator(tmp_path: Path) -> None:
    def run() -> None:
        model = TransformerBlock().cuda()
        compiled = torch.compile(model)
        x = torch.randn(4, 64, 64, device="cuda")
        for _ in range(5):
            model.zero_grad()
            compiled(x).float().sum().backward()

    records = record(tmp_path, run)
    found = curves(records)
    assert len(found) >= 8
    for layout, points in found[-4:]:
        assert points[-1][1] - points[0][1] == sum(changes(layout).values())
    assert not records[LifetimeMismatch.KIND]


def test_under_cuda_graphs_nothing_is_held_and_nothing_is_wrong(tmp_path: Path) -> None:
    def run() -> None:
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 64)).cuda()
        compiled = torch.compile(model, mode="reduce-overhead")
        for _ in range(6):
            model.zero_grad()
            compiled(torch.randn(8, 64, device="cuda")).sum().backward()

    records = record(tmp_path, run)
    assert records[LifetimeLayout.KIND]
    assert not records[LifetimeMismatch.KIND]
    assert not [call for growth in records["growth"] for call in growth["call"]]
