"""Ten million births and deaths of storages, shown: ``python -m tests.benchmarks.bench_memory [--part N]``.

Two synthetic runs: 100 steps of one call with 50,000 storages each, and a million short calls with 5 storages each.
Prints how long the index takes, and the median of each query with its JSON on an open index. `--part N` makes both
runs N times smaller.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from stepscope.tracer.schema.graphs import Argument, Graph, LaunchSite, Provenance, SiteProvenance
from stepscope.tracer.schema.launches import Calls, Launches
from stepscope.tracer.schema.memory import LifetimeLayout, ScheduledBuffers, SchedulerMemory
from stepscope.tracer.schema.process_ends import End, Frame
from stepscope.tracer.schema.steps import Steps
from stepscope.viewer.memory.queries.alive import alive_in_call
from stepscope.viewer.memory.queries.graph import graph_memory
from stepscope.viewer.memory.queries.graphs import lifetime_events
from stepscope.viewer.memory.queries.nodes import node_memory
from stepscope.viewer.memory.queries.run import live_curve, run_peaks
from stepscope.viewer.overview.summary import summary
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs.memory_logs import NEW, layout, lifetimes, schedule
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, run

ROUNDS = 7
STORAGES, STEPS = 50_000, 100
SHORT_STORAGES, SHORT_CALLS, BATCH = 5, 1_000_000, 20_000
LAUNCH_NS = 1_000


def graph(launches: int) -> Graph:
    sites = [
        LaunchSite(
            i, "call", i + 1, f"kernel_{i % 50}", "triton", [Argument(f"buf{i}", "out", f"buf{i}")], [],
            snodes=[f"op{i}"],
        )
        for i in range(launches)
    ]  # fmt: skip
    return Graph(0, "cbench", "0/0", "0_inference", "inference", False, False, ["call"], sites, [])


def provenance(launches: int) -> Provenance:
    frames = [Frame("/src/model.py", line, "forward", f"x = layer_{line}(x)") for line in range(200)]
    return Provenance(0, frames, [SiteProvenance(i, [[i % 200]], []) for i in range(launches)])


def memory_of(storages: int) -> tuple[SchedulerMemory, LifetimeLayout]:
    """Each launch makes a buffer, which dies two launches later; every tenth lives until the end of the call."""
    sizes = [512 * (1 + i % 97) for i in range(storages)]
    ends = [storages if i % 10 == 0 else min(i + 2, storages) for i in range(storages)]
    deaths = sorted(enumerate(ends), key=lambda pair: pair[1])
    buffers: list[Any] = [
        (f"buf{i}", size, i, min(end - 1, storages - 1), "temporary")
        for i, (size, end) in enumerate(zip(sizes, ends, strict=True))
    ]
    made: list[Any] = [(f"buf{i}", "allocated", size, i, NEW) for i, size in enumerate(sizes)]
    columns = [list(column) for column in zip(*buffers, strict=True)]
    empty = schedule(0, buffers[:1], {}, 1)
    alloc, free = sizes, [0] * storages
    for i, end in deaths:
        free[min(end - 1, storages - 1)] += sizes[i]
    live, after_alloc, after_free = 0, [], []
    for up, down in zip(alloc, free, strict=True):
        after_alloc.append(live + up)
        live += up - down
        after_free.append(live)
    peak = max(after_alloc)
    estimate = SchedulerMemory(
        graph=0, subgraph=None, snode=[f"op{i}" for i in range(storages)],
        members=[[f"op{i}"] for i in range(storages)], node_kind=["SchedulerNode"] * storages, alloc_bytes=alloc,
        free_bytes=free, after_alloc_bytes=after_alloc, after_free_bytes=after_free,
        buffers=ScheduledBuffers(columns[0], sizes, sizes, columns[2], columns[3], columns[4]), peak_bytes=peak,
        peak_snodes=[after_alloc.index(peak)], base_name=empty.base_name, base_bytes=empty.base_bytes,
    )  # fmt: skip
    return estimate, layout(0, 0, made, deaths)


def write_log(path: Path, storages: int, calls: int, per_step: int, per_batch: int) -> int:
    """Returns how many births and deaths the log holds."""
    estimate, same = memory_of(storages)
    call_ns, step_ns = LAUNCH_NS * (storages + 2), LAUNCH_NS * (storages + 4) * per_step
    with path.open("wb") as file:
        log = LogBuilder().record(run()).record(graph(storages)).record(provenance(storages))
        log.record(estimate).record(same)
        for first in range(0, calls, per_batch):
            numbers = list(range(first, min(first + per_batch, calls)))
            starts = [MONOTONIC_NS + number * (call_ns + LAUNCH_NS) for number in numbers]
            count = len(numbers)
            made = Calls(
                numbers, [0] * count, [0] * count, [n // per_step for n in numbers], [1] * count, [None] * count,
                starts, [call_ns] * count, [storages] * count, ["ok"] * count,
            )  # fmt: skip
            at = [start + LAUNCH_NS * (1 + i) for start in starts for i in range(storages)]
            log.record(Launches(made, list(range(storages)) * count, at, [ns + LAUNCH_NS // 2 for ns in at]))
            log.record(lifetimes(numbers, [0] * count))
            if per_step == 1:
                log.record(Steps(numbers, ["train"] * count, ["user"] * count, starts, [s + call_ns for s in starts]))
            file.write(log.data)
            log.data = b""
        log.record(End("exit", MONOTONIC_NS + calls * step_ns))
        file.write(log.data)
    return 2 * storages * calls


def median_ms(action: Callable[[], Any]) -> tuple[float, int]:
    """Milliseconds of the query and its JSON, and the size of that."""
    times, size = [], 0
    for _ in range(ROUNDS):
        start = time.perf_counter()
        size = len(orjson.dumps(action(), option=orjson.OPT_NON_STR_KEYS))
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times), size


def show(trace: Trace, call: int) -> None:
    curve = live_curve(trace, 0)
    assert curve is not None
    span, middle = curve.end_ns - curve.start_ns, (curve.start_ns + curve.end_ns) // 2
    actions: dict[str, Callable[[], Any]] = {
        "graph memory page": lambda: graph_memory(trace, 0, call),
        "alive at the call's peak": lambda: alive_in_call(trace, call),
        "one node": lambda: node_memory(trace, 0, 3, call),
        "whole-run curve": lambda: live_curve(trace, 0),
        "zoom: a tenth": lambda: live_curve(trace, 0, middle, middle + span // 10),
        "zoom: a thousandth": lambda: live_curve(trace, 0, middle, middle + span // 1_000),
        "zoom: a millionth": lambda: live_curve(trace, 0, middle, middle + span // 1_000_000),
        "peaks": lambda: [asdict(peak) for peak in run_peaks(trace)],
        "summary": lambda: summary(trace),
    }
    for name, action in actions.items():
        ms, size = median_ms(action)
        print(f"  {name:26} {ms:8.1f} ms   {size / 1e3:9.1f} kB")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", type=int, default=1)
    part = parser.parse_args().part
    runs = {
        "100 steps of 50,000 storages": (STORAGES // part, STEPS, 1, 1),
        "1,000,000 calls of 5 storages": (SHORT_STORAGES, SHORT_CALLS // part, 1_000, BATCH),
    }
    for name, (storages, calls, per_step, per_batch) in runs.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "bench.log")
            events = write_log(path, storages, calls, per_step, per_batch)
            start = time.perf_counter()
            with open_trace(path) as trace:
                seconds = time.perf_counter() - start
                assert lifetime_events(trace) == events
                print(
                    f"{name} / {part}: {events:,} events, log {path.stat().st_size / 1e6:.0f} MB, "
                    f"index {trace.index_bytes / 1e6:.0f} MB in {seconds:.1f} s"
                )
                show(trace, calls // 2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
