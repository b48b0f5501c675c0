"""Values of compiled programs on a CUDA device, eager and inside of CUDA graphs."""

from __future__ import annotations

import gc
import math
import statistics
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import stepscope
from stepscope.tracer.runtime.stats.arena import arenas
from stepscope.tracer.runtime.values.elements import elements_of
from stepscope.tracer.runtime.values.reading import PlanPoint
from stepscope.tracer.runtime.values.rows import PlannedRead
from tests.capture.logs import Trace
from tests.capture.test_values import rows
from tests.gpu.test_capture import Step, not_recorded, transformer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("default"),
]


@pytest.fixture(autouse=True)
def no_graphs_of_other_tests() -> None:
    """Rows inside of CUDA graphs are few, and belong to a graph as long as it is there."""
    torch._dynamo.reset()
    gc.collect()
    for arena in arenas():
        for graph in list(arena._regions):
            arena._release(graph)


def record(folder: Path, make: Callable[[], Step], steps: int = 6, **settings: Any) -> tuple[list[list[Any]], Trace]:
    """The tensors of each step, equal to the bit with and without recording, and what was recorded."""

    def results() -> list[list[Any]]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        step, found = make(), []
        for number in range(steps):
            torch.manual_seed(number)
            found.append([t.detach().clone() for t in pytree.tree_leaves(step(number))])
            stepscope.step()
        torch.cuda.synchronize()
        return found

    plain = results()
    with stepscope.trace(folder, level="values", **settings):
        stepscope.step()
        recorded = results()
    for a, b in zip(plain, recorded, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    trace = Trace(folder)
    assert trace.of("failure") == []
    return recorded, trace


def assert_among(results: list[Any], seen: list[dict[str, Any]]) -> None:
    for number, tensor in enumerate(results):
        low, high, zeros = tensor.min().item(), tensor.max().item(), int((tensor == 0).sum())
        assert any(
            row["numel"] == tensor.numel() and row["zero"] == zeros
            and math.isclose(row["min"], low, rel_tol=1e-6) and math.isclose(row["max"], high, rel_tol=1e-6)
            for row in seen if row["min"] is not None
        ), (number, tuple(tensor.shape), low, high, zeros)  # fmt: skip


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_every_result_stands_among_the_values_of_its_step(tmp_path: Path, mode: str | None) -> None:
    results, trace = record(tmp_path, transformer(mode))
    assert not_recorded(trace.of("skipped")) == []
    by_step: dict[int, list[dict[str, Any]]] = {}
    for row in rows(trace):
        assert row["skipped"] is None
        by_step.setdefault(row["step"], []).append(row)
    assert len(by_step) == len(results)
    for step, expected in zip(sorted(by_step), results, strict=True):
        assert_among(expected[1:], by_step[step])  # the loss is computed outside of the compiled function
    states = {state for batch in trace.of("launches") for state in batch["calls"]["state"]}
    assert ("replayed" in states) == (mode is not None)


def test_what_a_launch_finds_is_what_its_writer_left(tmp_path: Path) -> None:
    _, trace = record(tmp_path, transformer(), verify_before=True)
    sites = {graph["graph"]: graph["sites"] for graph in trace.of("graph")}
    last: dict[tuple[Any, ...], dict[str, Any]] = {}
    compared = 0
    for row in rows(trace):
        version = sites[row["graph"]][row["site"]]["arguments"][row["argument"]]["version"]
        if row["moment"] == "before" and version is not None:
            earlier = last.get((row["call"], version["site"], version["argument"], version["moment"], version["item"]))
            if earlier is not None and earlier["numel"] == row["numel"]:
                compared += 1
                assert [earlier[key] for key in ("min", "max", "nan", "zero")] == [
                    row[key] for key in ("min", "max", "nan", "zero")
                ]
        last[row["call"], row["site"], row["argument"], row["moment"], row["item"]] = row
    assert compared > 100


def test_a_changed_configuration_is_followed_without_a_recompile(tmp_path: Path) -> None:
    torch._dynamo.reset()
    make = transformer()
    with stepscope.trace(tmp_path, level="launches"):
        step = make()
        for number in range(6):
            if number == 3:
                stepscope.configure(level="values", kernels="extern_kernels.*")
            step(number)
            stepscope.step()
    trace = Trace(tmp_path)
    found = list(rows(trace))
    sites = {graph["graph"]: graph["sites"] for graph in trace.of("graph")}
    assert {row["step"] for row in found} == {3, 4, 5}
    assert {sites[row["graph"]][row["site"]]["kind"] for row in found} == {"extern"}
    assert len([graph for graph in trace.of("graph") if graph["compile_id"] is not None]) == 2


def test_device_times_of_sampled_calls(tmp_path: Path) -> None:
    def make() -> Step:
        function = torch.compile(lambda x: (x @ x).sin() @ x)
        x = torch.randn(4096, 4096, device="cuda")
        return lambda number: [function(x)]

    torch._dynamo.reset()
    with stepscope.trace(tmp_path, level="launches"):
        step = make()
        for number in range(12):
            step(number)
            stepscope.step()
        torch.cuda.synchronize()
    trace = Trace(tmp_path)
    measured = [
        (launch, ns)
        for batch in trace.of("device_times")
        for launch, ns in zip(batch["launch"], batch["duration_ns"], strict=True)
    ]
    assert [launch for launch, _ in measured] == [0, 1, 2, 0, 1, 2]
    # 137 GFLOP in float32 take this device over 2 ms, an element-wise kernel over 64 MiB about 30 us.
    assert all((1_000_000 < ns < 20_000_000) == (launch != 1) for launch, ns in measured)


def chain(mode: str | None = None) -> Step:
    """Four launches, each of which reads what the one before has written; the second and the last one write over it."""
    function = torch.compile(lambda x: ((x @ x).sin() @ x).cos(), mode=mode)
    x = torch.randn(4096, 4096, device="cuda")

    def step(number: int) -> list[Any]:
        return [function(x)]

    return step


def device_times(trace: Trace, how: str) -> dict[int, list[int]]:
    """By launch."""
    found: dict[int, list[int]] = {}
    for batch in trace.of("device_times"):
        if batch["how"] == how:
            for launch, ns in zip(batch["launch"], batch["duration_ns"], strict=True):
                found.setdefault(launch, []).append(ns)
    return found


def test_device_times_inside_of_cuda_graphs(tmp_path: Path) -> None:
    events, steps = tmp_path / "events", 12
    for folder, mode in ((events, None), (tmp_path / "graphs", "reduce-overhead")):
        torch._dynamo.reset()
        with stepscope.trace(folder, level="values", verify_before=True):
            step = chain(mode)
            for number in range(steps):
                step(number)
                torch.cuda.synchronize()
                stepscope.step()
    trace = Trace(tmp_path / "graphs")
    assert trace.of("failure") == []
    measured, expected = device_times(trace, "timestamps"), device_times(Trace(events), "events")
    assert set(expected) == {0, 1, 2, 3}
    assert set(measured) >= {0, 3}  # the others share what lies between two readings
    marks = [mark for batch in trace.of("step_marks") for mark in zip(batch["what"], batch["ns"], strict=True)]
    ends = [ns for what, ns in marks if what == "user"]
    assert len(ends) == steps
    longest = max(end - begin for begin, end in pairwise(ends))
    for launch, times in measured.items():
        typical = statistics.median(times)
        # Events around a launch also time what reads its arguments before it is recorded; timestamps the gaps.
        assert 0.5 * min(expected[launch]) < typical < 1.5 * max(expected[launch]) + 20_000, (launch, times)
        assert min(times) > 0
    replays = len(measured[0])
    assert replays >= 5
    for number in range(replays):
        assert sum(times[number] for times in measured.values()) < longest


def test_a_replay_follows_a_changed_filter(tmp_path: Path) -> None:
    torch._dynamo.reset()
    with stepscope.trace(tmp_path, level="values"):
        step = chain("reduce-overhead")
        for number in range(12):
            if number == 6:
                stepscope.configure(kernels="triton_*")
            if number == 9:
                stepscope.configure(kernels="triton_*", args="in_out_ptr0")
            step(number)
            torch.cuda.synchronize()
            stepscope.step()
    trace = Trace(tmp_path)
    assert trace.of("failure") == []
    assert not_recorded(trace.of("skipped")) == []
    sites = {graph["graph"]: graph["sites"] for graph in trace.of("graph")}
    kinds: dict[int, set[tuple[str, int]]] = {}
    for row in rows(trace):
        site = sites[row["graph"]][row["site"]]
        kinds.setdefault(row["step"], set()).add((site["kind"], row["argument"]))
        if site["kind"] == "triton" and row["moment"] == "after":
            assert -1 <= row["min"] < row["max"] <= 1
    assert {kind for kind, _ in kinds[5]} == {"extern", "triton"}
    assert {kind for kind, _ in kinds[8]} == {"triton"}
    assert kinds[11]
    assert kinds[11] <= kinds[8]
    states = {state for batch in trace.of("launches") for state in batch["calls"]["state"]}
    assert "replayed" in states


def test_a_replay_says_that_it_cannot_read_more_than_was_captured(tmp_path: Path) -> None:
    torch._dynamo.reset()
    with stepscope.trace(tmp_path, level="values", kernels="triton_*"):
        step = chain("reduce-overhead")
        for number in range(8):
            if number == 5:
                stepscope.configure(kernels="")
            step(number)
            torch.cuda.synchronize()
            stepscope.step()
    skipped = not_recorded(Trace(tmp_path).of("skipped"))
    assert [record["what"] for record in skipped] == ["values inside a CUDA graph"]


def test_elements_are_those_of_the_moment_of_reading() -> None:
    """They are copied down the stream; what a CUDA graph is captured with has none."""
    tensor = torch.arange(6.0, device="cuda").view(2, 3).t()
    place = PlanPoint([PlannedRead(0, 0, "after", "mm", "buf0", True)], None, None, elements=64)
    prepared = place.prepare([tensor])
    block = prepared.read([tensor])
    tensor.zero_()
    block.wait()
    assert dict(elements_of(block)) == {0: [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]}
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        captured = prepared.read([tensor])
    assert dict(elements_of(captured)) == {}
