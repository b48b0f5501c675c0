"""CPU time of the dashboard's answers on a long run: ``python -m tests.benchmarks.bench_viewer [--part N]``.

The run has 1,000 steps of 1,000 launches, each with five value rows, in 10 graphs of 100 launch sites. Prints the
median of the CPU time of each answer on an open index, without a server, then the CPU time of the command line for the
summary of a small trace, and of a report of 100,000 launches with its size and the time to its first paint. `--part N`
makes all of it N times shorter.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from stepscope.tracer.schema.launches import Calls, Launches
from stepscope.tracer.schema.process_ends import End, Overhead
from stepscope.tracer.schema.statistics import Values
from stepscope.tracer.schema.steps import Steps
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web.app import create_app
from tests.benchmarks.bench_ingest import run as run_process
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, recorded, run
from tests.logs.value_logs import FINE, Program, Stat, layout_of, values_of

STEPS, REPORTED_STEPS, SMALL_STEPS = 1_000, 100, 3
GRAPHS, LAUNCHES, READ = 10, 100, 4
LAUNCH_NS, CALL_NS, STEP_NS = 1_000, 110_000, 1_200_000
ROUNDS = 9
SUMMARIES = 5
PAINTS = 5
CHROMIUM = os.environ.get("STEPSCOPE_CHROMIUM", "/usr/bin/chromium")
PAINTED = """() => new Promise((found) => new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (entry.name === "first-contentful-paint") found(entry.startTime);
}).observe({ type: "paint", buffered: true }))"""


def programs() -> list[Program]:
    """Return graphs each of whose launches reads four tensors and writes one."""
    graphs = [Program(number, compile_id=f"{number}/0", again=True) for number in range(GRAPHS)]
    for graph, i in itertools.product(graphs, range(LAUNCHES)):
        reads = [f"buf{i - 1 - k}" if i > k else f"primals_{k}" for k in range(READ)]
        graph.allocate(f"buf{i}").launch(f"cpp_fused_relu_{i % 40}", reads, [f"buf{i}"], "cpp")
    return graphs


def write_log(path: Path, steps: int) -> None:
    """Write the log of so many steps; in each tenth, one launch writes zeros."""
    graphs, rows = programs(), [FINE] * (LAUNCHES * (READ + 1))
    log = LogBuilder().record(run(level="values"))
    for graph in graphs:
        log.record(graph.graph()).record(graph.provenance())
        log.record(layout_of(graph, rows[: len(graph.layout)], graph.number))
    with path.open("wb") as file:
        for step in range(steps):
            for record in records_of(step, [len(graph.layout) for graph in graphs]):
                log.record(record)
            file.write(log.data)
            log.data = b""
        log.record(Overhead(1, 1, 1, steps * GRAPHS * LAUNCHES, 0)).record(End("exit", MONOTONIC_NS + 10**15))
        file.write(log.data)


def records_of(step: int, rows: list[int]) -> Iterator[Launches | Values | Steps]:
    first, at = step * GRAPHS, MONOTONIC_NS + step * STEP_NS
    numbers, starts = list(range(first, first + GRAPHS)), [at + i * CALL_NS for i in range(GRAPHS)]
    launch_ns = [start + i * LAUNCH_NS for start in starts for i in range(LAUNCHES)]
    yield Launches(
        Calls(
            numbers, list(range(GRAPHS)), [0] * GRAPHS, [step] * GRAPHS, [1] * GRAPHS, [None] * GRAPHS, starts,
            [LAUNCHES * LAUNCH_NS] * GRAPHS, [LAUNCHES] * GRAPHS, ["ok"] * GRAPHS,
        ),
        list(range(LAUNCHES)) * GRAPHS, launch_ns, [ns + LAUNCH_NS // 2 for ns in launch_ns],
    )  # fmt: skip
    found = [Stat(mean=0.001 * ((step + i) % 97), zero=i % 11 == 0) for i in range(sum(rows))]
    if step % 10 == 0:
        found[step % len(found)] = Stat(zero=64, min=0.0, max=0.0, mean=0.0, std=0.0)
    yield values_of(numbers, list(range(GRAPHS)), found)
    yield Steps([step], ["train"], ["optimizer"], [at], [at + STEP_NS - LAUNCH_NS])


class Asker:
    """Asks the dashboard of a trace and measures its CPU time, that of all threads."""

    def __init__(self, trace: Trace) -> None:
        self._app, self._loop, self._asked = create_app(trace), asyncio.new_event_loop(), 0

    def close(self) -> None:
        self._loop.close()

    def ask(self, address: str) -> tuple[float, int]:
        """Return milliseconds of CPU and the size of the answer, which is computed anew: no two addresses are equal."""
        self._asked += 1
        path, _, query = address.partition("?")
        query += f"&uncached={self._asked}"
        scope: dict[str, Any] = {
            "type": "http", "method": "GET", "path": path, "query_string": query.encode(), "http_version": "1.1",
            "headers": [(b"host", b"127.0.0.1:8686")], "scheme": "http", "server": ("127.0.0.1", 8686), "root_path": "",
        }  # fmt: skip
        sent: list[dict[str, Any]] = []
        start = time.process_time()
        self._loop.run_until_complete(self._answer(scope, sent))
        took = 1000 * (time.process_time() - start)
        assert sent[0]["status"] == 200, (address, sent)
        return took, sum(len(message.get("body", b"")) for message in sent)

    async def _answer(self, scope: dict[str, Any], sent: list[dict[str, Any]]) -> None:
        asked = iter([{"type": "http.request", "body": b"", "more_body": False}])

        async def receive() -> dict[str, Any]:
            if (message := next(asked, None)) is None:
                await asyncio.Event().wait()
            assert message is not None
            return message

        async def send(message: Any) -> None:
            sent.append(message)

        await self._app(scope, receive, send)


def show(trace: Trace, steps: int) -> None:
    """Print what each answer takes at first and then; the panels, steps and searches differ in each round."""
    asker, of_step = Asker(trace), GRAPHS * LAUNCHES
    places = [(i * 379 * of_step // 1000 + 7 * i) % (steps * of_step) for i in range(ROUNDS + 1)]
    addresses = {
        "overview": ["/"] * len(places),
        "steps": ["/steps"] * len(places),
        "step page": [f"/steps/{place // of_step}?log=0" for place in places],
        "a launch's panel": [f"/launches/{places[-1] + 3 * i}.json" for i in range(len(places))],
        "  in another step": [f"/launches/{place}.json" for place in places],
        "/values": ["/values"] * len(places),
        "/values, a part": [f"/values?first_step={i}&last_step={steps // 2 + i}" for i in range(len(places))],
        "/kernels": ["/kernels"] * len(places),
        "a graph": [f"/graphs/{i % GRAPHS}" for i in range(len(places))],
        "search": [f"/search.json?text=relu_{i}" for i in range(len(places))],
    }
    medians = []
    for name, asked in addresses.items():
        first, *others = [asker.ask(address) for address in asked]
        medians.append(statistics.median(ms for ms, _ in others))
        print(f"{name:20} {medians[-1]:8.1f} ms   first {first[0]:8.1f} ms   {first[1] / 1e3:8.0f} kB")
    print(f"{'mean of all':20} {statistics.mean(medians):8.1f} ms")
    asker.close()


def command(cache: Path, *words: str) -> float:
    """Return the seconds of CPU of a command of stepscope."""
    return run_process([sys.executable, "-m", "stepscope", *words], cache).cpu_s


def first_paint_ms(report: Path) -> float:
    """Return the milliseconds from the navigation to a report until Chromium, just started, paints its first page."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        page = browser.new_page()
        page.goto(report.as_uri())
        found: float = page.evaluate(PAINTED)
        browser.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", type=int, default=1)
    part = parser.parse_args().part
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        small, log, cache = recorded(SMALL_STEPS).write(folder / "small.log"), folder / "long.log", folder / "cache"
        command(cache, "summary", str(small))
        summaries = [command(cache, "summary", str(small)) for _ in range(SUMMARIES)]
        print(f"summary of a small trace, index there: {statistics.median(summaries):.2f} s of CPU")
        write_log(log, REPORTED_STEPS // part)
        report = folder / "report.html"
        command(cache, "summary", str(log))
        took = command(cache, "report", str(log), "-o", str(report))
        launches = REPORTED_STEPS // part * GRAPHS * LAUNCHES
        size = report.stat().st_size / 1e6
        print(f"report of {launches:,} launches: {took:.1f} s of CPU, {size:.2f} MB")
        paints = [first_paint_ms(report) for _ in range(PAINTS)]
        print(f"  its first page is painted {statistics.median(paints):.0f} ms after the navigation")
        write_log(log, STEPS // part)
        print(f"{STEPS // part * GRAPHS * LAUNCHES:,} launches, {log.stat().st_size / 1e6:.0f} MB")
        with open_trace(log, index_dir=folder / "index") as trace:
            show(trace, STEPS // part)
    return 0


if __name__ == "__main__":
    sys.exit(main())
