"""From the command line to the first page served, index built: python -m tests.benchmarks.bench_open [LOG]

The log is a plain TORCH_TRACE log of 3.6 MB unless one is named. Beside it stands the time of the bare imports
that no opening can do without, so that figures of different machines can be compared.
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
import urllib.request
from pathlib import Path

ROUNDS = 7
SAMPLES = Path(os.environ.get("STEPSCOPE_SAMPLES", Path(__file__).resolve().parents[2].parent / "shared"))
LOG = SAMPLES / "torch_trace_logs" / "multi_rank_logs" / "dedicated_log_torch_trace_rank_1.log"


def main() -> None:
    log = Path(sys.argv[1]) if len(sys.argv) > 1 else LOG
    if not log.exists():
        sys.exit(f"{log} is not there: name a log, or set STEPSCOPE_SAMPLES to the folder that has torch_trace_logs")
    print(f"{log.name}, {log.stat().st_size / 1e6:.1f} MB, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copy(log, folder))
        cold = [first_page(copy, fresh=True) for _ in range(ROUNDS)]
        warm = [first_page(copy, fresh=False) for _ in range(ROUNDS)]
    imports = [wall([sys.executable, "-c", "import duckdb, jinja2, typer, uvicorn"]) for _ in range(ROUNDS)]
    show("command to first page, index built", cold)
    show("command to first page, index there", warm)
    show("bare imports of duckdb, jinja2, typer, uvicorn", imports)
    print(f"first page, index built / bare imports: {statistics.median(cold) / statistics.median(imports):.2f}")


def first_page(log: Path, *, fresh: bool) -> float:
    if fresh:
        for index in log.parent.glob("*.duckdb"):
            index.unlink()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", "from viewer.cli import main; main()", "serve", str(log), "--port", str(port)]
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            while time.perf_counter() - started < 60:
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
                        answer.read()
                    return time.perf_counter() - started
                except OSError:
                    time.sleep(0.005)
        finally:
            server.terminate()
    raise SystemExit(f"no page within 60 s from: {' '.join(command)}")


def wall(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - started


def show(what: str, seconds: list[float]) -> None:
    print(f"{what:50} median {statistics.median(seconds):.2f} s, best {min(seconds):.2f} s")


if __name__ == "__main__":
    main()
