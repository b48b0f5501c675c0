"""Builds logs with lifetimes: a training run of a forward and a backward graph with sums computed by hand.

Forward: three launches (op0, op1, op2), and the bytes alive during them, besides the base of 384:
    buf0 512 (op0 -> op1), buf1 1024 (op1, saved for backward), buf2 64 (op2, the loss)  ->  512, 1536, 1088, end 1088
Backward: two launches, which may free the saved buffer (named `relu` there), with a base of 320:
    relu 1024 (until op0), buf3 256 (op0), buf4 128 (op1)                                ->  1280, 384, end 384
Total over a step: 384, 896, 1920, 1472 | 1536, 1792, 896 | after it 256 (the weight), or 320 if the loss is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stepscope.tracer.schema.launches import Calls, Launches
from stepscope.tracer.schema.memory import (
    AllocatorCurve,
    BufferRole,
    LifetimeLayout,
    Lifetimes,
    ScheduledBuffers,
    SchedulerMemory,
    StorageKind,
)
from stepscope.tracer.schema.process_ends import End, Overhead
from stepscope.tracer.schema.steps import Steps
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, run
from tests.logs.value_logs import Program

STEP_NS, BACKWARD_NS, CALL_NS, LAUNCH_NS = 10_000, 4_000, 2_000, 100
WEIGHT, X, LOSS = 256, 128, 64
FORWARD_PEAK, BACKWARD_PEAK = 1536, 1280
RUN_PEAK = 1920
"""Peak of the first step; each loss that is kept from an earlier step adds to it."""


def forward() -> Program:
    return (
        Program(0, "forward")
        .allocate("buf0")
        .launch("extern_kernels.mm", ["primals_1", "primals_2"], ["buf0"])
        .allocate("buf1")
        .launch("cpp_fused_relu_0", ["buf0"], ["buf1"], "cpp")
        .free("buf0")
        .allocate("buf2")
        .launch("cpp_fused_mean_1", ["buf1"], ["buf2"], "cpp")
    )


def backward() -> Program:
    return (
        Program(1, "backward")
        .allocate("buf3")
        .launch("extern_kernels.mm", ["relu", "tangents_1"], ["buf3"])
        .free("relu")
        .allocate("buf4")
        .launch("cpp_fused_mul_0", ["buf3", "primals_1"], ["buf4"], "cpp")
    )


def schedule(
    graph: int, buffers: Sequence[tuple[str, int, int, int, BufferRole]], base: dict[str, int],
    nodes: int, **changes: Any,
) -> SchedulerMemory:  # fmt: skip
    """Return the schedule with the curve of `buffers`, which are (name, bytes, first, last, role)."""
    alloc = [sum(b[1] for b in buffers if b[2] == i and b[4] != "input") for i in range(nodes)]
    free = [sum(b[1] for b in buffers if b[3] == i) for i in range(nodes)]
    live, after_alloc, after_free = sum(b[1] for b in buffers if b[4] == "input"), [], []
    for i in range(nodes):
        after_alloc.append(live + alloc[i])
        live += alloc[i] - free[i]
        after_free.append(live)
    peak = max(after_alloc)
    columns = [list(column) for column in zip(*buffers, strict=True)]
    return replace(
        SchedulerMemory(
            graph=graph, subgraph=None, snode=[f"op{i}" for i in range(nodes)],
            members=[[f"op{i}"] for i in range(nodes)], node_kind=["SchedulerNode"] * nodes, alloc_bytes=alloc,
            free_bytes=free, after_alloc_bytes=after_alloc, after_free_bytes=after_free,
            buffers=ScheduledBuffers(columns[0], columns[1], columns[1], columns[2], columns[3], columns[4]),
            peak_bytes=peak, peak_snodes=[i for i, size in enumerate(after_alloc) if size == peak],
            base_name=list(base), base_bytes=list(base.values()),
        ),
        **changes,
    )  # fmt: skip


def forward_schedule(**changes: Any) -> SchedulerMemory:
    buffers: list[Any] = [
        ("buf0", 512, 0, 1, "temporary"), ("buf1", 1024, 1, -1, "output"), ("buf2", 64, 2, -1, "output"),
    ]  # fmt: skip
    return schedule(0, buffers, {"primals_1": WEIGHT, "primals_2": X}, 3, **changes)


def backward_schedule(**changes: Any) -> SchedulerMemory:
    buffers: list[Any] = [
        ("relu", 1024, 0, 0, "input"), ("buf3", 256, 0, -1, "output"), ("buf4", 128, 1, -1, "output"),
    ]  # fmt: skip
    return schedule(1, buffers, {"primals_1": WEIGHT, "tangents_1": 64}, 2, **changes)


Met = tuple[int | None, int | None, int | None]
NEW: Met = (None, None, None)


def layout(
    number: int,
    graph: int,
    storages: Sequence[tuple[str, StorageKind, int, int, Met]],
    deaths: Sequence[tuple[int, int]],
    function: int = 0,
    device: str = "cpu",
) -> LifetimeLayout:
    """Return a layout; `storages` are (name, kind, bytes, born, (calls back, call of earlier step, number there))."""
    return LifetimeLayout(
        layout=number,
        graph=graph,
        function=function,
        name=[s[0] for s in storages],
        kind=[s[1] for s in storages],
        storage_bytes=[s[2] for s in storages],
        device=[device if s[4] == NEW else None for s in storages],
        born=[s[3] for s in storages],
        site=[None] * len(storages),
        calls_back=[s[4][0] for s in storages],
        met_in=[s[4][1] for s in storages],
        met_as=[s[4][2] for s in storages],
        dead=[d[0] for d in deaths],
        dead_at=[d[1] for d in deaths],
    )


def forward_layout(number: int = 0, weight: Met = NEW) -> LifetimeLayout:
    storages: list[Any] = [
        ("primals_1", "input", WEIGHT, 0, weight), ("primals_2", "input", X, 0, NEW),
        ("buf0", "allocated", 512, 0, NEW), ("buf1", "allocated", 1024, 1, NEW), ("buf2", "allocated", LOSS, 2, NEW),
    ]  # fmt: skip
    return layout(number, 0, storages, [(2, 2)])


def backward_layout(number: int = 1, weight: Met = (1, None, 0)) -> LifetimeLayout:
    storages: list[Any] = [
        ("primals_1", "input", WEIGHT, 0, weight), ("relu", "input", 1024, 0, (1, None, 3)),
        ("tangents_1", "input", 64, 0, NEW), ("buf3", "allocated", 256, 0, NEW), ("buf4", "allocated", 128, 1, NEW),
    ]  # fmt: skip
    return layout(number, 1, storages, [(1, 1)])


def lifetimes(
    call: list[int],
    layout: list[int],
    dead: Sequence[tuple[int, int, int]] = (),
    allocator: Sequence[tuple[int, int, int, int]] = (),
) -> Lifetimes:
    """Return lifetimes; `dead` are (call, index, ns), `allocator` (call, position, allocated, reserved)."""
    curve = AllocatorCurve(*([row[i] for row in allocator] for i in range(4)))
    return Lifetimes(call, layout, [d[0] for d in dead], [d[1] for d in dead], [d[2] for d in dead], curve)


def calls_of(number: int, program: Program, step: int, start_ns: int) -> Launches:
    count = len(program.sites)
    calls = Calls([number], [program.number], [0], [step], [1], [None], [start_ns], [CALL_NS], [count], ["ok"])
    starts = [start_ns + (i + 1) * LAUNCH_NS for i in range(count)]
    return Launches(calls, list(range(count)), starts, [at + LAUNCH_NS // 2 for at in starts])


def start_of(step: int) -> int:
    return MONOTONIC_NS + 1_000_000 + step * STEP_NS


def training(
    steps: int = 4, keep: int = 0, allocator: bool = False, end: bool = True, **run_changes: Any
) -> LogBuilder:
    """Return a run whose call 2 * step is forward and the next one backward; losses are freed `keep` steps later."""
    programs = forward(), backward()
    log = LogBuilder(run_changes.get("pid", 4711)).record(run(**run_changes))
    for program in programs:
        log.record(program.graph()).record(program.provenance())
    log.record(forward_schedule()).record(backward_schedule())
    for step in range(steps):
        at = start_of(step)
        for i, program in enumerate(programs):
            log.record(calls_of(2 * step + i, program, step, at + 500 + i * BACKWARD_NS))
        log.record(forward_layout(0) if step == 0 else forward_layout(2, (None, 0, 0)))
        log.record(backward_layout(1) if step == 0 else backward_layout(3, (None, 0, 0)))
        after = at + 8_000
        dead = [(2 * step, 1, after), (2 * step + 1, 2, after), (2 * step + 1, 3, after), (2 * step + 1, 4, after)]
        if step >= keep:
            dead.append((2 * (step - keep), 4, after))
        figures = [(2 * step, p, size, 8192) for p, size in ((0, 2048), (1, 4096), (3, 3072))] if allocator else []
        log.record(lifetimes([2 * step, 2 * step + 1], [0, 1] if step == 0 else [2, 3], dead, figures))
        log.record(Steps([step], ["train"], ["optimizer"], [at], [at + 9_000]))
    if end:
        log.record(Overhead(1_000, 1_000_000, 20_000, 5 * steps, 0))
        log.record(End("exit", start_of(steps)))
    return log
