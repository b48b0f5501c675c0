"""How long a reader waits: ``python -m tests.benchmarks.bench_first_page [ROUNDS]``.

`stepscope --help`, and `stepscope serve` on a small trace until its first page and all that this page loads are there:
with an index, and without one. Medians, each also as a multiple of the start of a bare Python.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.bench_open import free_port, wait_for_page
from tests.logs import overflow_log

ROUNDS = 5
STEPSCOPE = [sys.executable, "-m", "stepscope"]
LOADED = re.compile(r'(?:src|href)="(/static/[^"]+)"')


def run_s(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def first_page_s(trace: Path, cache: Path) -> float:
    """Seconds from the start of the command until the first page, its style and its scripts were there."""
    port = free_port()
    start = time.perf_counter()
    server = subprocess.Popen(
        [*STEPSCOPE, "serve", str(trace), "--port", str(port)],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
    )
    try:
        wait_for_page(port, server)
        root = f"http://127.0.0.1:{port}"
        for address in LOADED.findall(read(f"{root}/")):
            read(root + address)
        return time.perf_counter() - start
    finally:
        server.terminate()
        server.wait()


def read(address: str) -> str:
    with urllib.request.urlopen(address) as answer:
        text: str = answer.read().decode()
    return text


def new_page_s(trace: Path, cache: Path) -> float:
    """A copy has no index, while the templates of the cache are compiled, as they are for a second trace."""
    with tempfile.TemporaryDirectory() as folder:
        return first_page_s(Path(shutil.copy(trace, folder)), cache)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    with tempfile.TemporaryDirectory() as folder:
        trace, cache = overflow_log.recorded().write(Path(folder, "small.log")), Path(folder, "cache")
        first_page_s(trace, cache)  # makes the index and the byte code
        measured: dict[str, Callable[[], float]] = {
            "bare Python": lambda: run_s([sys.executable, "-c", ""]),
            "stepscope --help": lambda: run_s([*STEPSCOPE, "--help"]),
            "first page, with an index": lambda: first_page_s(trace, cache),
            "first page, new trace": lambda: new_page_s(trace, cache),
        }
        times: dict[str, list[float]] = {name: [] for name in measured}
        for _ in range(rounds):  # in turn, so that all of them meet the same load of the machine
            for name, measure in measured.items():
                times[name].append(measure())
    bare = statistics.median(times["bare Python"])
    for name, taken in times.items():
        median = statistics.median(taken)
        print(f"{name:26} {1000 * median:6.0f} ms  {median / bare:5.1f} x   best {1000 * min(taken):.0f}")


if __name__ == "__main__":
    main()
