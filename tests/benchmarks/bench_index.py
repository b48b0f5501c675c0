"""Index of a long run with values: ``python -m tests.benchmarks.bench_index [MILLIONS_OF_LAUNCHES ...]``.

Each launch has five value rows. The log is written through the real log format, in batches as the recorder writes them.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from stepscope.tracer.schema.launches import Calls, Launches
from stepscope.tracer.schema.process_ends import End, Overhead
from stepscope.tracer.schema.statistics import Exact, Sparse, Values
from stepscope.tracer.schema.steps import Steps
from tests.benchmarks.bench_ingest import run as run_process
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, run
from tests.logs.value_logs import FINE, Program, layout_of

MILLIONS = (1.0,)
LAUNCHES, CALLS = 100, 40
"""Launches of a call, and calls of a batch."""
READ = 4
LAUNCH_NS, CALL_NS = 1_000, 150_000
_INDEX = "import sys; from stepscope.viewer.store.open import open_trace; print(open_trace(sys.argv[1]).index_bytes)"


def program() -> Program:
    """Return a graph each of whose launches reads four tensors and writes one."""
    graph = Program(again=True)
    for i in range(LAUNCHES):
        reads = [f"buf{i - 1 - k}" if i > k else f"primals_{k}" for k in range(READ)]
        graph.allocate(f"buf{i}").launch(f"cpp_fused_relu_{i % 40}", reads, [f"buf{i}"], "cpp")
    return graph


def write_log(path: Path, launches: int, *, one_step: bool = False) -> int:
    """Write a log with so many launches and return its size in bytes. Each call is a step, or all are `one_step`."""
    graph, chance, rows = program(), random.Random(0), 0
    head = LogBuilder().record(run(level="values")).record(graph.graph()).record(graph.provenance())
    layout = layout_of(graph, [FINE] * len(graph.layout))
    with path.open("wb") as file:
        file.write(head.record(layout).data)
        for first in range(0, launches // LAUNCHES, CALLS):
            log = LogBuilder()
            for record in batch(list(range(first, first + CALLS)), len(graph.layout), chance, one_step):
                log.record(record)
            file.write(log.data)
            rows += CALLS * len(graph.layout)
        if one_step:
            end_ns = MONOTONIC_NS + launches // LAUNCHES * CALL_NS
            file.write(LogBuilder().record(Steps([0], ["train"], ["optimizer"], [MONOTONIC_NS], [end_ns])).data)
        last = LogBuilder().record(Overhead(1, 1, 1, launches, 0)).record(End("exit", MONOTONIC_NS + 10**15))
        file.write(last.data)
        print(f"{launches:,} launches, {rows:,} value rows, {file.tell() / 1e6:.0f} MB")
        return file.tell()


def batch(
    calls: list[int], rows_each: int, chance: random.Random, one_step: bool = False
) -> Iterator[Launches | Values | Steps]:
    """Yield the records of some calls, each of which is a step, or which belong to `one_step`."""
    count, starts = len(calls), [MONOTONIC_NS + call * CALL_NS for call in calls]
    launch_ns = [start + i * LAUNCH_NS for start in starts for i in range(LAUNCHES)]
    yield Launches(
        Calls(
            calls, [0] * count, [0] * count, [0] * count if one_step else calls, [1] * count, [None] * count, starts,
            [LAUNCHES * LAUNCH_NS] * count, [LAUNCHES] * count, ["ok"] * count,
        ),
        list(range(LAUNCHES)) * count, launch_ns, [at + LAUNCH_NS // 2 for at in launch_ns],
    )  # fmt: skip
    rows, none = count * rows_each, Sparse([], [])
    zero = sorted(chance.sample(range(rows), rows // 10))
    mean: list[float | None] = [float(f"{chance.gauss(0, 1e-3):.5g}") for _ in range(rows)]
    yield Values(
        call=calls, layout=[0] * count, min=[float(f"{-chance.random():.7g}") for _ in mean],
        max=[float(f"{chance.random():.7g}") for _ in mean], mean=mean,
        std=[float(f"{chance.random():.5g}") for _ in range(rows)], nan=none, positive_infinity=none,
        negative_infinity=none, zero=Sparse(zero, [chance.randint(1, 64) for _ in zero]), near_overflow=none,
        subnormal=none, first_bad=none, exact=Exact([], [], []),
    )  # fmt: skip
    if not one_step:
        yield Steps(calls, ["train"] * count, ["optimizer"] * count, starts, [start + CALL_NS for start in starts])


def main() -> int:
    for millions in [float(text) for text in sys.argv[1:]] or list(MILLIONS):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder, "long.log")
            size = write_log(log, int(millions * 1e6))
            used = run_process([sys.executable, "-c", _INDEX, str(log)], Path(folder, "cache"))
            index = int(used.output.split()[-1])
            print(
                f"  index of {index / 1e6:.0f} MB: {used.cpu_s:.2f} s of CPU, {used.wall_s:.1f} s;"
                f" peak memory {used.peak_bytes / 1e6:.0f} MB, {used.peak_bytes / size:.2f} of the log;"
                f" load {os.getloadavg()[0]:.1f}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
