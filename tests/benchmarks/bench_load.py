"""Many clients at once: ``python -m tests.benchmarks.bench_load [TRACE] [--clients N] [--seconds N] [--part N]``.

`stepscope serve` shows a trace, by default the run of `bench_viewer` with a million launches and five million value
rows, to clients that ask again as soon as they have an answer, on connections that stay open. Each client draws pages
and JSON of its own from many launches, steps and windows of steps with a fixed seed. Prints the median and the 99th
percentile of the time of a request, the CPU time of the server per request, errors, how many addresses were asked for,
how often one had been asked for before, and the largest memory of the server.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tests.benchmarks.bench_open import free_port, wait_for_page
from tests.benchmarks.bench_viewer import STEPS, write_log

CLIENTS, SECONDS, SEED = 50, 60, 1
TICKS = os.sysconf("SC_CLK_TCK")
SHARES = {
    "panel": 40, "step page": 12, "zoom": 12, "graph": 6, "kernel": 5, "values, a part": 3, "values": 3, "overview": 8,
    "steps": 3, "kernels": 3, "graphs": 5,
}  # fmt: skip
"""How often a client asks for what, in hundredths."""


@dataclass
class Run:
    """What a trace has to ask for."""

    steps: list[tuple[int, int, int]]
    """Log, number and launches of each step."""
    graphs: list[int]
    kernels: list[str]
    starts: dict[int, tuple[int, int]]
    """Begin and end of each step."""

    @cached_property
    def launches(self) -> int:
        return sum(count for _, _, count in self.steps)


@dataclass
class Client:
    """A client that draws addresses until a moment, and the times of its answers."""

    run: Run
    port: int
    seed: int
    until: float
    asked: list[tuple[str, str, float]] = field(default_factory=list)
    """Kind, address and seconds of each answer."""
    errors: Counter[str] = field(default_factory=Counter)

    def ask_on(self) -> None:
        draw = random.Random(self.seed)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        while time.monotonic() < self.until:
            kind, address = address_of(self.run, draw)
            start = time.monotonic()
            try:
                connection.request("GET", address)
                answer = connection.getresponse()
                answer.read()
                if answer.status != 200:
                    self.errors[f"{answer.status} for {kind}"] += 1
            except (OSError, http.client.HTTPException) as error:
                self.errors[f"{type(error).__name__} for {kind}"] += 1
                connection.close()
            self.asked.append((kind, address, time.monotonic() - start))
        connection.close()


def address_of(run: Run, draw: random.Random) -> tuple[str, str]:
    """Return the kind and the address of the next request."""
    (kind,) = draw.choices(list(SHARES), list(SHARES.values()))
    log, step, _ = draw.choice(run.steps)
    last = min(len(run.steps) - 1, step + draw.randrange(1, 500))
    start, end = run.starts[step]
    width = (end - start) // draw.choice((2, 5, 20, 100))
    begin = start + draw.randrange(max(1, end - start - width))
    return kind, {
        "panel": f"/launches/{draw.randrange(run.launches)}.json",
        "step page": f"/steps/{step}?log={log}",
        "zoom": f"/steps/{step}/timeline.json?log={log}&start_ns={begin}&end_ns={begin + width}&width=1600",
        "graph": f"/graphs/{draw.choice(run.graphs)}",
        "kernel": f"/kernels/{draw.choice(run.kernels)}",
        "values, a part": f"/values?first_step={step}&last_step={last}",
        "values": "/values", "overview": "/", "steps": "/steps", "kernels": "/kernels", "graphs": "/graphs",
    }[kind]  # fmt: skip


def contents(port: int) -> Run:
    """Read from the server what its trace has."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def read(address: str) -> dict[str, list[dict[str, object]]]:
        connection.request("GET", address)
        found: dict[str, list[dict[str, object]]] = json.loads(connection.getresponse().read())
        return found

    steps = read("/steps.json")["steps"]
    numbers = [tuple(int(str(step[name])) for name in ("log", "step", "launches")) for step in steps]
    spans = {int(str(step["step"])): (int(str(step["start_ns"])), int(str(step["end_ns"]))) for step in steps}
    graphs = [int(str(graph["graph"])) for graph in read("/graphs.json")["graphs"]]
    kernels = sorted({str(kernel["kernel"]) for kernel in read("/kernels.json")["kernels"]})
    return Run(numbers, graphs, kernels, spans)  # type: ignore[arg-type]


def cpu_s(pid: int) -> float:
    """Return the user and system seconds that a process has used."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICKS


def peak_mb(pid: int) -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / 1e6


def measure(port: int, pid: int, clients: int, seconds: int) -> None:
    run, before, begun = contents(port), cpu_s(pid), time.monotonic()
    print(f"after the first pages: {before:.1f} s of CPU, {peak_mb(pid):.0f} MB", flush=True)
    crowd = [Client(run, port, 1_000 * SEED + i, begun + seconds) for i in range(clients)]
    threads = [threading.Thread(target=client.ask_on) for client in crowd]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    used, took = cpu_s(pid) - before, time.monotonic() - begun
    asked = [one for client in crowd for one in client.asked]
    times = sorted(s for _, _, s in asked)
    addresses = {address for _, address, _ in asked}
    errors = sum((client.errors for client in crowd), Counter[str]())
    print(f"{clients} clients, {took:.0f} s: {len(asked):,} requests, {len(addresses):,} addresses")
    print(f"asked for before: {1 - len(addresses) / len(asked):.0%}")
    print(f"p50 {1000 * statistics.median(times):.0f} ms   p99 {1000 * times[int(0.99 * (len(times) - 1))]:.0f} ms")
    print(f"CPU of the server per request: {1000 * used / len(asked):.1f} ms, {used / took:.2f} cores")
    print(f"errors: {errors.total()} {dict(errors)}   largest memory: {peak_mb(pid):.0f} MB")
    for kind in SHARES:
        of_kind = [s for name, _, s in asked if name == kind]
        if of_kind:
            print(f"  {kind:16} {len(of_kind):6,} requests   p50 {1000 * statistics.median(of_kind):6.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("trace", nargs="?", type=Path)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--part", type=int, default=1)
    parser.add_argument("--cache", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trace = asked.trace or Path(folder, "long.log")
        if asked.trace is None:
            write_log(trace, STEPS // asked.part)
        environment = {**os.environ, "XDG_CACHE_HOME": str(asked.cache or Path(folder, "cache"))}
        words = [sys.executable, "-m", "stepscope"]
        subprocess.run([*words, "summary", str(trace)], env=environment, stdout=subprocess.DEVNULL, check=True)
        port = free_port()
        with subprocess.Popen(
            [*words, "serve", str(trace), "--port", str(port)], env=environment, stdout=subprocess.DEVNULL
        ) as server:
            try:
                wait_for_page(port, server)
                measure(port, server.pid, asked.clients, asked.seconds)
            finally:
                server.terminate()


if __name__ == "__main__":
    main()
