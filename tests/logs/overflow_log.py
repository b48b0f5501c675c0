"""Builds a log with values: a product that grows with each step until it overflows, which leads to NaN."""

from __future__ import annotations

from dataclasses import replace

from stepscope.tracer.schema.graphs import Argument, Graph, Version
from stepscope.tracer.schema.launches import TensorMeta, Tensors
from stepscope.tracer.schema.process_ends import End, Overhead
from stepscope.tracer.schema.statistics import Exact, Sparse, Values
from stepscope.tracer.schema.steps import Steps
from stepscope.tracer.schema.values import ValueLayout
from tests.logs import synthetic
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder

LIMIT = 65504.0
NUMEL = 32


def graph(
    number: int = 0, kernel: str = "cpp_fused_relu_0", buffer: str = "buf0", mm: str = "extern_kernels.mm"
) -> Graph:
    """Return the graph of `synthetic.graph` with chosen names and the contents of its arguments' memory."""
    plain = synthetic.graph(number)
    made = Version(0, 2, "after")
    arguments = [
        [
            Argument("arg0_1", "in", "arg0_1", "self", "arg0_1", "input", Version(0, 0, "before")),
            Argument("arg1_1", "in", "arg1_1", "mat2", "arg1_1", "input", Version(0, 1, "before")),
            Argument(buffer, "out", buffer, "out", buffer, "uninitialised"),
        ],
        [Argument("buf1", "inout", "buf1", "in_out_ptr0", buffer, "written", made)],
    ]
    sites = [replace(site, arguments=new) for site, new in zip(plain.sites, arguments, strict=False)]
    sites[0], sites[1] = replace(sites[0], kernel=mm), replace(sites[1], kernel=kernel)
    return replace(plain, sites=[*sites, *plain.sites[2:]])


def layout(number: int = 0, graph: int = 0) -> ValueLayout:
    """Return the values read in a call: both inputs, the product, and the in-place result; one of them is sampled."""
    return ValueLayout(
        layout=number,
        graph=graph,
        site=[0, 0, 0, 1],
        argument=[0, 1, 2, 0],
        moment=["before", "before", "after", "after"],
        item=[None] * 4,
        part=[None] * 4,
        dtype=["float16"] * 4,
        numel=[NUMEL, 64, NUMEL, NUMEL],
        looked_at=[NUMEL, 16, NUMEL, NUMEL],
        skipped=[None] * 4,
    )


def values(call: int, size: float, layout: int = 0) -> Values:
    """Return the values of a call whose product has the maximum `size`, or infinities and NaN above the limit."""
    overflow, none = size > LIMIT, Sparse([], [])
    largest = LIMIT if overflow else size
    return Values(
        call=[call],
        layout=[layout],
        min=[-1.5, -0.25, -largest / 3, 0.0],
        max=[1.25, 0.3125, largest, largest],
        mean=[0.01, 0.02, size / 1000, largest / 500],
        std=[0.5, 0.125, size / 10, largest / 9],
        nan=Sparse([3], [7]) if overflow else none,
        positive_infinity=Sparse([2], [3]) if overflow else none,
        negative_infinity=none,
        zero=Sparse([3], [11]),
        near_overflow=Sparse([2], [2]) if size > LIMIT / 4 else none,
        subnormal=Sparse([1], [1]),
        first_bad=Sparse([2, 3], [9, 9]) if overflow else none,
        exact=Exact([], [], []),
    )


def tensors(call: int = 0, graph: int = 0) -> Tensors:
    meta = [
        TensorMeta(0, "float16", [4, 8], [8, 1], "cpu", 0, 64),
        TensorMeta(1, "float16", [8, 8], [8, 1], "cpu", 0, 128),
        TensorMeta(2, "float16", [4, 8], [8, 1], "cpu", 0, 64),
    ]
    return Tensors(graph, call, 0, meta)


def recorded(steps: int = 6, graphs: int = 1, names: dict[str, str] | None = None, **run_changes: object) -> LogBuilder:
    """Return a run in which the product grows by a factor of four per step."""
    log = LogBuilder().record(synthetic.run(level="values", **run_changes))
    synthetic.compile_records(log)
    for number in range(graphs):
        log.record(graph(number, **(names or {})))
        log.record(layout(number, number))
    log.record(synthetic.provenance()).record(tensors())
    for step in range(steps):
        start_ns = MONOTONIC_NS + 1_000_000 + step * 10_000
        for number in range(graphs):
            call = (step * graphs + number) * 10
            log.record(synthetic.calls(call, step, start_ns + 500 + number * 1_200, graph=number))
            log.record(values(call, 64.0 * 4.0 ** min(step, 40), number))
        log.record(Steps([step], ["inference"], ["user"], [start_ns], [start_ns + 1_000 + 1_300 * graphs]))
    log.record(Overhead(1_000, 1_000_000, 20_000, 4 * steps * graphs, 0))
    return log.record(End("exit", MONOTONIC_NS + 2_000_000))
