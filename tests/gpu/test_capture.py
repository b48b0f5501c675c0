"""Launches on a CUDA device: Triton, extern and fallback kernels, CUDA graphs, partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import stepscope
from stepscope.tracer.demo import TransformerBlock
from stepscope.tracer.schema.constants import CACHED_ESTIMATE
from tests.tracer import logs

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("default"),
]

Step = Callable[[int], Any]


def record(folder: Path, make: Callable[[], Step], steps: int = 4) -> dict[str, list[Any]]:
    """Run what `make` makes without and with recording, from one compile; the results must be equal to the bit."""

    def results() -> list[Any]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        step = make()
        found = []
        for number in range(steps):
            torch.manual_seed(number)
            found += [t.detach().clone() for t in pytree.tree_leaves(step(number))]
        torch.cuda.synchronize()
        return found

    plain = results()
    with stepscope.trace(folder) as recorder:
        recorded = results()
    assert all(torch.equal(a, b) for a, b in zip(plain, recorded, strict=True))
    assert recorder.path is not None
    found = logs.read(recorder.path)
    assert not found["failure"]
    return found


def transformer(mode: str | None = None, **options: Any) -> Callable[[], Step]:
    def make() -> Step:
        layer = torch.nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
        model = torch.nn.Sequential(layer).cuda().train()
        compiled = torch.compile(model, mode=mode, options=options or None)
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        x = torch.randn(4, 32, 64, device="cuda")

        def step(number: int) -> Any:
            optimizer.zero_grad()
            loss = compiled(x).square().mean()
            loss.backward()
            gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
            optimizer.step()
            return [loss, *gradients]

        return step

    return make


def not_recorded(records: list[Any]) -> list[Any]:
    """What was skipped, beside what a graph from a cache cannot tell: the step without recording has compiled it."""
    return [record for record in records if record["what"] != CACHED_ESTIMATE]


def launches_by_step(found: dict[str, list[Any]]) -> Counter[int]:
    total: Counter[int] = Counter()
    for batch in found["launches"]:
        for step, count in zip(batch["calls"]["step"], batch["calls"]["launches"], strict=True):
            total[step] += count
    return total


def graphs_called(found: dict[str, list[Any]]) -> list[dict[str, Any]]:
    called = {graph for batch in found["launches"] for graph in batch["calls"]["graph"]}
    return [graph for graph in found["graph"] if graph["graph"] in called]


def test_every_step_of_a_transformer_has_the_same_launches(tmp_path: Path) -> None:
    found = record(tmp_path, transformer())
    per_step = launches_by_step(found)
    sites = sum(len(graph["sites"]) for graph in graphs_called(found))
    assert set(per_step.values()) == {sites}
    kinds = {site["kind"] for graph in graphs_called(found) for site in graph["sites"]}
    assert {"triton", "extern"} <= kinds
    assert not not_recorded(found["skipped"])


def test_triton_launches_have_nodes_and_lines_of_source(tmp_path: Path) -> None:
    # Compiled anew and alone: tuning may choose other kernels in another compile, whose results differ in the last bit.
    torch._dynamo.reset()
    with torch._inductor.config.patch(force_disable_caches=True), stepscope.trace(tmp_path) as recorder:
        torch.compile(TransformerBlock().cuda())(torch.randn(4, 32, 64, device="cuda")).sum().backward()
    assert recorder.path is not None
    found = logs.read(recorder.path)
    sites = [site for graph in graphs_called(found) for site in graph["sites"]]
    assert all(site["snodes"] for site in sites)
    with_stack = {(p["graph"], s["site"]) for p in found["provenance"] for s in p["sites"] if s["stacks"]}
    assert len(with_stack) >= len(sites) * 0.8


def test_replays_of_a_cuda_graph_are_calls(tmp_path: Path) -> None:
    found = record(tmp_path, transformer("reduce-overhead"), steps=6)
    states = {state for batch in found["launches"] for state in batch["calls"]["state"]}
    assert states == {"ok", "captured", "replayed"}
    assert not not_recorded(found["skipped"])
    assert [what for batch in found["step_marks"] for what in batch["what"]] == ["optimizer"] * 6
    assert set(launches_by_step(found)) == set(range(6))


def test_partitions_around_a_device_copy(tmp_path: Path) -> None:
    def make() -> Step:
        def function(x: torch.Tensor) -> torch.Tensor:
            y = (x @ x).sin()
            return (y.cpu() + 1).cuda() * y

        compiled = torch.compile(function, mode="reduce-overhead")
        x = torch.randn(64, 64, device="cuda")
        return lambda number: compiled(x)

    found = record(tmp_path, make, steps=5)
    functions = {name for graph in graphs_called(found) for name in graph["functions"]}
    assert "call" in functions


def test_a_users_triton_kernel(tmp_path: Path) -> None:
    from tests.gpu.kernels import double

    def make() -> Step:
        x = torch.randn(1000, device="cuda")
        compiled = torch.compile(lambda t: double(t + 1).sin())
        return lambda number: compiled(x)

    found = record(tmp_path, make, steps=2)
    (site,) = [s for g in graphs_called(found) for s in g["sites"] if s["kind"] == "user_triton"]
    assert [(a["parameter"], a["role"]) for a in site["arguments"]] == [("source", "in"), ("target", "inout")]


def test_dynamic_shapes_are_recorded_as_they_change(tmp_path: Path) -> None:
    def make() -> Step:
        compiled = torch.compile(lambda x: (x @ x.t()).softmax(-1), dynamic=True)
        return lambda number: compiled(torch.randn(64 + 8 * number, 32, device="cuda"))

    found = record(tmp_path, make, steps=3)
    sizes = {tuple(t["size"]) for record_ in found["tensors"] for t in record_["tensors"]}
    assert {(64, 32), (72, 32), (80, 32)} <= sizes
