"""A STORE of many ranks, made with 1 and 2 workers: ``python -m tests.benchmarks.bench_units [RANKS [MB]]``.

The ranks' logs are made of the sample logs (STEPSCOPE_SAMPLES, or ``shared`` beside the checkout): repeated to the
size asked for with new frame ids, each with a rank of its own. What the last lines say of 4,096 ranks of 1 GB is
reckoned from the figures above them.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepscope.viewer.overview.queries.overview import overview
from stepscope.viewer.store.distributed_ingest.pools import DaskPool, LocalPool, Pool, usable_cores
from stepscope.viewer.store.distributed_ingest.run import Outcome, plan, run_tasks
from stepscope.viewer.store.distributed_ingest.task import Done, Task
from stepscope.viewer.store.open import open_trace

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ("simple.log", "chromium_events.log", "multi_rank_logs/dedicated_log_torch_trace_rank_1.log")
RANKS, MEGABYTES = 64, 3.0
BIG_RANKS, BIG_BYTES = 4096, 1e9
LARGE = 2
"""Logs that together are as large as those of all ranks: what a log costs beside its bytes."""
OPENINGS = 5
_FRAME = re.compile(rb'("frame_id": ?)(\d+)')
_RANK = re.compile(rb'^(V\d{4} [^\n]*"rank": ?)\d+', re.MULTILINE)
_HEADER = re.compile(rb"^(V\d{4} [^{\n]*\] \{)", re.MULTILINE)
_FRAMES_EACH = 10_000


class Silent:
    def begin(self, logs: int, log_bytes: int) -> None: ...
    def done(self, unit: Done) -> None: ...
    def retry(self, unit: Task, reason: str) -> None:
        print(f"{unit.log.address}: {reason}")

    def end(self) -> None: ...


def sample_folder() -> Path | None:
    """Return the folder of the sample logs; print a sentence if there is none."""
    samples = Path(os.environ.get("STEPSCOPE_SAMPLES", ROOT.parent / "shared" / "torch_trace_logs"))
    if samples.is_dir():
        return samples
    print(f"{samples} does not exist; name the folder of the sample logs in STEPSCOPE_SAMPLES")
    return None


def write_ranks(samples: Path, folder: Path, ranks: int, size: int) -> int:
    """Logs of `ranks` ranks of at least `size` bytes; returns their bytes."""
    texts = [of_rank((samples / name).read_bytes(), 0) for name in SAMPLES]
    repeated: list[bytes] = []
    while sum(map(len, repeated)) < size:
        repeated.append(_later_frames(texts[len(repeated) % len(texts)], len(repeated) * _FRAMES_EACH))
    whole = b"".join(repeated)
    for rank in range(ranks):
        path = folder / f"dedicated_log_torch_trace_rank_{rank}_bench.log"
        path.write_bytes(of_rank(whole, rank))
    return len(whole) * ranks


def of_rank(text: bytes, rank: int) -> bytes:
    """Return a log with another rank in its headers; payloads stay as they are, so that every md5 stays right."""
    text = text.replace(b"\r\n", b"\n")
    if _RANK.search(text):
        return _RANK.sub(b"\\g<1>%d" % rank, text)
    return _HEADER.sub(b'\\1"rank": %d, ' % rank, text)


def _later_frames(text: bytes, by: int) -> bytes:
    return _FRAME.sub(lambda found: found[1] + b"%d" % (int(found[2]) + by), text)


def children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(folder: Path, pool: Callable[[], Pool], end: Callable[[], None] | None = None) -> tuple[float, float, int]:
    """(seconds, seconds of CPU in workers, bytes of Parquet)."""
    with tempfile.TemporaryDirectory() as store:
        before, start = children_s(), time.perf_counter()
        planned = plan(str(folder), store)
        outcome: Outcome = run_tasks(planned, pool(), Silent())
        seconds = time.perf_counter() - start
        if end:
            end()
        if outcome.failed:
            raise SystemExit(f"{outcome.failed[0]}")
        while multiprocessing.active_children():  # their CPU is known when they have ended
            time.sleep(0.05)
        return seconds, children_s() - before, sum(done.parquet_bytes for done in outcome.done)


def cluster_of(workers: int) -> Any:
    """Start dask workers, each a process with one thread."""
    import distributed

    return distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None,
        silence_logs=50,
    )  # fmt: skip


def on_dask(folder: Path, workers: int) -> tuple[float, float, int]:
    cluster = cluster_of(workers)
    return timed(folder, lambda: DaskPool(cluster.scheduler_address), cluster.close)


def open_times(folder: Path) -> tuple[float, float]:
    """Median seconds to open a STORE, and to its overview."""
    with tempfile.TemporaryDirectory() as store:
        run_tasks(plan(str(folder), store), LocalPool(None), Silent())
        opened, shown = [], []
        for _ in range(OPENINGS):
            gc.collect()
            start = time.perf_counter()
            with open_trace(store) as trace:
                opened.append(time.perf_counter() - start)
                overview(trace)
                shown.append(time.perf_counter() - start)
    return statistics.median(opened), statistics.median(shown)


def main() -> int:
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else RANKS
    size = int(float(sys.argv[2] if len(sys.argv) > 2 else MEGABYTES) * 1e6)
    samples = sample_folder()
    if samples is None:
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        total = write_ranks(samples, folder, ranks, size)
        print(f"{ranks} ranks, {total / 1e6:.0f} MB of logs, {usable_cores()} cores, load {os.getloadavg()[0]:.1f}")
        one = report("1 process", total, timed(folder, lambda: LocalPool(1)))
        report("2 processes", total, timed(folder, lambda: LocalPool(2)), one)
        report("dask, 1 worker", total, on_dask(folder, 1), one)
        report("dask, 2 workers", total, on_dask(folder, 2), one)
        opened, shown = open_times(folder)
    with tempfile.TemporaryDirectory() as name:
        large = write_ranks(samples, Path(name), LARGE, total // LARGE)
        few = report(f"{LARGE} large ranks", large, timed(Path(name), lambda: LocalPool(1)))
    print(f"opening the STORE {opened * 1e3:.0f} ms, with the overview {shown * 1e3:.0f} ms")
    # Two equations: so much CPU for each log, and for each byte.
    per_byte = (few[1] - one[1] * LARGE / ranks) / (large - total * LARGE / ranks)
    per_log = max(0.0, (one[1] - per_byte * total) / ranks)
    estimate(per_log, per_byte, few[2] / large)
    return 0


def report(
    name: str, total: int, figures: tuple[float, float, int], one: tuple[float, float, int] | None = None
) -> tuple[float, float, int]:
    seconds, cpu, parquet = figures
    ratio = f"  {one[0] / seconds:.2f} times as fast as 1 process" if one else ""
    print(
        f"{name:<16}{seconds:6.1f} s  {total / 1e6 / seconds:5.2f} MB/s  workers' CPU {cpu:5.1f} s"
        f"  Parquet {parquet / total:.3f} of the logs{ratio}"
    )
    return figures


def estimate(per_log_s: float, per_byte_s: float, parquet_share: float) -> None:
    """What a run of thousands of large ranks takes, when its workers do not wait for storage."""
    cpu_s = BIG_RANKS * (per_log_s + BIG_BYTES * per_byte_s)
    parquet = BIG_RANKS * BIG_BYTES * parquet_share
    print(f"CPU: {per_log_s:.2f} s for each log and {per_byte_s * 1e9:.0f} s for each GB of it")
    print(f"{BIG_RANKS:,} ranks of 1 GB: {cpu_s / 3600:.0f} hours of one core, {parquet / 1e12:.2f} TB of Parquet")
    for workers in (64, 256, 1024):
        rate = BIG_RANKS * BIG_BYTES * workers / cpu_s
        print(f"  {workers:>5} workers: {cpu_s / workers / 60:.0f} minutes, reading {rate / 1e9:.2f} GB/s")


if __name__ == "__main__":
    sys.exit(main())
