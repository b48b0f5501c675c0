"""From the command line to the first page served: ``python -m tests.benchmarks.bench_open [LOG]``.

Each round starts `stepscope serve` on a log that has no index and asks for the first page until it comes. Without
LOG it is the largest of the sample logs (STEPSCOPE_SAMPLES, or ``shared`` beside the checkout).
"""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = "torch_trace_logs/multi_rank_logs/dedicated_log_torch_trace_rank_1.log"
ROUNDS = 10
GIVE_UP_S = 60


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for_page(port: int, server: subprocess.Popen[bytes]) -> int:
    """Bytes of the first page; polls, because until the server listens there is nobody to wait for."""
    end = time.monotonic() + GIVE_UP_S
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=GIVE_UP_S) as page:
                return len(page.read())
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.005)
    raise SystemExit("the server did not answer")


def round_s(log: Path, cache: Path) -> tuple[float, int]:
    """Seconds until the first page was there, and its size."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copy(log, folder))
        port = free_port()
        stepscope = Path(sys.executable).parent / "stepscope"
        command = [str(stepscope), "serve", str(copy), "--port", str(port)]
        start = time.perf_counter()
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "XDG_CACHE_HOME": str(cache)})
        try:
            size = wait_for_page(port, server)
            return time.perf_counter() - start, size
        finally:
            server.terminate()
            server.wait()


def main() -> int:
    samples = Path(os.environ.get("STEPSCOPE_SAMPLES", ROOT.parent / "shared"))
    log = Path(sys.argv[1]) if len(sys.argv) > 1 else samples / SAMPLE
    if not log.exists():
        print(f"{log} does not exist; name a log, or the folder of the sample logs in STEPSCOPE_SAMPLES")
        return 0
    with tempfile.TemporaryDirectory() as cache:
        rounds = [round_s(log, Path(cache)) for _ in range(ROUNDS)]
    times = [seconds for seconds, _ in rounds]
    low, middle, high = statistics.quantiles(times, n=4)
    print(f"{log.name}: {log.stat().st_size / 1e6:.1f} MB, first page {rounds[0][1] / 1e3:.0f} kB")
    print(f"command line to first page   {middle:.2f} s   quartiles {low:.2f} .. {high:.2f}, worst {max(times):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
