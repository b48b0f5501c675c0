"""Pages about memory of a long run: ``python -m tests.benchmarks.bench_memory_pages [STEPS [LAUNCHES]]``.

Each step calls one graph with so many launches, each of which has a buffer of its own that dies some launches later.
Times are those of the dashboard without a server around it, on an index that is there, the middle of several.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from stepscope.tracer.schema.launches import Calls, Launches
from stepscope.tracer.schema.memory import BufferRole
from stepscope.tracer.schema.process_ends import End, Overhead
from stepscope.tracer.schema.steps import Steps
from stepscope.viewer.store.open import open_trace
from tests.logs.memory_logs import NEW, layout, lifetimes, schedule
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, run
from tests.logs.value_logs import Program
from tests.viewer.client import Client

KINDS_OF_KERNELS, LONGEST_LIFE, ROUNDS = 40, 30, 7
LAUNCH_NS, REST_NS = 100, 10_000
WEIGHT = 256


def program(launches: int) -> Program:
    graph = Program(0, "forward")
    for i in range(launches):
        kernel = f"cpp_fused_relu_{i % KINDS_OF_KERNELS}"
        graph.allocate(f"buf{i}").launch(kernel, [f"buf{i - 1}" if i else "primals_1"], [f"buf{i}"], "cpp")
    return graph


def long_run(steps: int, launches: int) -> LogBuilder:
    chance = random.Random(0)
    role: BufferRole = "temporary"
    buffers = [
        (f"buf{i}", chance.randint(1, 100) * 1024, i, min(launches - 1, i + chance.randint(1, LONGEST_LIFE)), role)
        for i in range(launches)
    ]
    made = [(name, "allocated", size, first, NEW) for name, size, first, _, _ in buffers]
    deaths = sorted(((i + 1, b[3] + 1) for i, b in enumerate(buffers) if b[3] + 1 < launches), key=lambda d: d[1])
    left = [i + 1 for i, b in enumerate(buffers) if b[3] + 1 >= launches]
    graph = program(launches)
    log = LogBuilder(4711).record(run()).record(graph.graph()).record(graph.provenance())
    log.record(schedule(0, buffers, {"primals_1": WEIGHT}, launches))
    for number, met in enumerate((NEW, (None, 0, 0))):
        log.record(layout(number, 0, [("primals_1", "input", WEIGHT, 0, met), *made], deaths))  # type: ignore[list-item]
    for step in range(steps):
        at = MONOTONIC_NS + step * (2 * LAUNCH_NS * launches + REST_NS)
        starts = [at + (i + 1) * LAUNCH_NS for i in range(launches)]
        end = starts[-1] + LAUNCH_NS
        calls = Calls([step], [0], [0], [step], [1], [None], [at], [end - at], [launches], ["ok"])
        log.record(Launches(calls, list(range(launches)), starts, [s + LAUNCH_NS // 2 for s in starts]))
        log.record(lifetimes([step], [min(step, 1)], [(step, i, end + LAUNCH_NS) for i in left]))
        log.record(Steps([step], ["train"], ["optimizer"], [at], [end + REST_NS // 2]))
    return log.record(Overhead(1, 1, 1, steps * launches, 0)).record(End("exit", end))


def main() -> int:
    steps, launches = (int(text) for text in (*sys.argv[1:3], *("200", "5000")[len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory() as folder:
        path = long_run(steps, launches).write(Path(folder) / "long.log")
        start = time.perf_counter()
        with open_trace(path) as trace:
            took = time.perf_counter() - start
            size = path.stat().st_size / 1e6
            print(f"{2 * steps * launches:,} births and deaths in {size:.0f} MB, index in {took:.1f} s")
            measure(Client(trace), steps, launches)
    return 0


def measure(client: Client, steps: int, launches: int) -> None:
    third = steps // 3
    for first in ("/", "/index.json"):
        client.get(first)
    for name, address in {
        "graph memory page": "/graphs/0/memory",
        "another node of it": f"/graphs/0/memory?snode={launches // 2}",
        "memory page of the run": "/memory",
        "its curve, all steps": "/memory/steps.json",
        "its curve, a third of them": f"/memory/steps.json?first_step={third}&last_step={2 * third}",
        "its curve, one step": f"/memory/steps.json?first_step={third}&last_step={third}",
        "below the timeline, all": "/memory/live.json?log=0",
    }.items():
        times = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            answer = client.get(address)
            times.append(time.perf_counter() - start)
            assert answer.status_code == 200, answer.text
        print(f"{name:28} {1e3 * statistics.median(times):6.0f} ms   {len(answer.content) / 1e3:6.0f} kB")


if __name__ == "__main__":
    sys.exit(main())
