"""`--profile` on a CUDA device: all work that PyTorch's profiler sees is recorded, and each kernel finds its launch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import stepscope
from stepscope.viewer.speed.queries.device_work import step_device_times
from stepscope.viewer.store import sql
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("default"),
]

Step = Callable[[int], Any]
Recorded = Callable[[Callable[[], Step]], tuple[Trace, str]]
FIRST, STOP, STEPS = 7, 10, 12


def training(mode: str | None = None) -> Step:
    """A model in bfloat16 with a fused optimizer and batches that are copied from pinned memory."""
    layer = torch.nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
    model = torch.nn.Sequential(layer, torch.nn.Linear(128, 64)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    compiled = torch.compile(model, mode=mode)
    batch = torch.randn(8, 64, 128).pin_memory()

    def step(number: int) -> Any:
        x = batch.cuda(non_blocking=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(x).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def two_streams() -> Step:
    side, x = torch.cuda.Stream(), torch.randn(1024, 1024, device="cuda")  # type: ignore[no-untyped-call]
    one = torch.compile(lambda x: torch.relu(x @ x).sin() + 1)
    two = torch.compile(lambda x: torch.softmax(x.cos() @ x, -1))

    def step(number: int) -> Any:
        side.wait_stream(torch.cuda.current_stream())
        a = one(x)
        with torch.cuda.stream(side):
            b = two(x)
        torch.cuda.current_stream().wait_stream(side)
        return (a + b).sum()

    return step


def broken() -> Step:
    """A graph break, and eager kernels before and after the compiled calls."""
    w, x = torch.randn(512, 512, device="cuda", requires_grad=True), torch.randn(256, 512, device="cuda")

    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x @ w).sin()
        torch._dynamo.graph_break()
        return (y @ w).cos().mean()

    def step(number: int) -> Any:
        f(x * 2).backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            w.sub_(w.grad if w.grad is not None else 0, alpha=1e-3)
        w.grad = None

    return step


def captured_by_hand() -> Step:
    """A CUDA graph with two compiled calls, and eager kernels between and after them."""
    w, x = torch.randn(512, 512, device="cuda"), torch.randn(256, 512, device="cuda")
    one = torch.compile(lambda x: torch.relu((x @ w) @ w).sin() + 1)
    two = torch.compile(lambda x: torch.softmax(x, -1))
    graph = torch.cuda.CUDAGraph()

    def body() -> Any:
        return two(torch.tanh(one(x)) * 3)

    def step(number: int) -> Any:
        if number < 3:
            return body().sum()
        if number == 3:
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                body()
        x.add_(1)
        graph.replay()
        return x.sum()

    return step


@pytest.fixture
def profiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    """Record a program with --profile; return the trace, and what the profiler's own table says in the end."""
    traces: list[Trace] = []

    def record(make: Callable[[], Step]) -> tuple[Trace, str]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        step, tables = make(), []
        stop = torch.profiler.profile.stop

        def told(profile: Any) -> None:
            stop(profile)
            tables.append(profile.key_averages().table(row_limit=1))

        monkeypatch.setattr(torch.profiler.profile, "stop", told)
        with stepscope.trace(tmp_path / f"trace{len(traces)}", profile=f"{FIRST}:{STOP}"):
            for number in range(STEPS):
                step(number)
            torch.cuda.synchronize()
        traces.append(open_trace(tmp_path / f"trace{len(traces)}"))
        assert len(tables) == 1
        return traces[-1], tables[0]

    yield record
    for trace in traces:
        trace.close()


@pytest.mark.parametrize(
    ("make", "streams"),
    [
        (training, 1),
        (lambda: training("reduce-overhead"), 1),
        (two_streams, 2),
        (broken, 1),
        (captured_by_hand, 1),
    ],
    ids=["training", "reduce-overhead", "two-streams", "graph-break", "captured-by-hand"],
)  # fmt: skip
def test_all_work_is_kept_and_finds_its_launch(profiled: Recorded, make: Callable[[], Step], streams: int) -> None:
    trace, table = profiled(make)
    total = re.search(r"Self CUDA time total: ([\d.]+)(us|ms|s)", table)
    assert total is not None
    told_ns = float(total[1]) * {"us": 1e3, "ms": 1e6, "s": 1e9}[total[2]]
    kept_ns = sql.number(trace, "SELECT sum(duration_ns) FROM device_work")
    assert kept_ns == pytest.approx(told_ns, rel=2e-3), "the table of the profiler has three decimals"

    # Every Triton kernel belongs to a launch of that kernel, and every such launch has exactly its kernel.
    pairs = sql.rows(
        trace,
        "SELECT w.name, s.kernel FROM device_work w LEFT JOIN launches l ON l.launch = w.launch"
        " LEFT JOIN sites s ON s.site = l.site WHERE s.kind = 'triton' OR starts_with(w.name, 'triton_')",
    )
    assert pairs
    assert all(name == kernel for name, kernel in pairs)
    missing = sql.rows(
        trace,
        "SELECT l.launch FROM launches l JOIN profiled_steps p ON p.log = l.log AND p.step = l.step"
        " JOIN sites s ON s.site = l.site WHERE s.kind IN ('triton', 'extern') AND l.device_duration_ns IS NULL",
    )
    assert missing == []
    names = {name for (name,) in sql.rows(trace, "SELECT DISTINCT name FROM device_work")}
    assert not any("spin_kernel" in name for name in names), "the recorder keeps no device busy meanwhile"

    steps = [step for (step,) in sql.rows(trace, "SELECT step FROM profiled_steps ORDER BY step")]
    assert len(steps) == STOP - FIRST
    for step in steps[1:]:
        (time,) = step_device_times(trace, 0, step)
        assert time.streams == streams
        assert 0 < time.busy_ns <= time.work_ns
        assert time.busy_ns <= time.duration_ns
        assert 0 < time.outside < time.kernels + time.copies
    reasons = sql.rows(trace, "SELECT what, why FROM not_recorded WHERE what LIKE '%profiled%'")
    assert reasons == []
