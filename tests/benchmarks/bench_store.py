"""A STORE of many ranks, one of whose dask workers is killed: ``python -m tests.benchmarks.bench_store [RANKS [FEW]]``.

The logs of RANKS ranks (4,096 unless told) are copies of the five small sample logs of several ranks, each with a rank
of its own. Two dask workers read them, and one is killed in the middle. What is in the STORE is then compared with the
rows of the five logs as one process reads them, and pages of it are asked for, without a server. FEW ranks (128; 0
for none) are read by one and by two workers.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stepscope.viewer.store import sql
from stepscope.viewer.store.distributed_ingest.pools import DaskPool, usable_cores
from stepscope.viewer.store.distributed_ingest.run import plan, run_tasks
from stepscope.viewer.store.distributed_ingest.task import Done
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.parquet.layout import TABLES, read_store
from stepscope.viewer.store.trace import Trace
from tests.benchmarks.bench_units import Silent, cluster_of, of_rank, on_dask, report, sample_folder
from tests.viewer.client import Client

RANKS, FEW = 4096, 128
SAMPLES = (
    "multi_rank_logs/dedicated_log_torch_trace_rank_0.log",
    "multi_rank_schedule/dedicated_log_torch_trace_rank_0_6u3fubwl.log",
    "multi_rank_logs/dedicated_log_torch_trace_rank_2.log",
    "multi_rank_schedule/dedicated_log_torch_trace_rank_1_n8zycf07.log",
    "multi_rank_schedule/dedicated_log_torch_trace_rank_2.log",
)
REPEATS = 3


class KillsAWorker(Silent):
    """Kills a worker when half of the logs are done."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self.logs = self.finished = self.killed_at = 0

    def begin(self, logs: int, log_bytes: int) -> None:
        self.logs = logs

    def done(self, unit: Done) -> None:
        self.finished += 1
        if not self.killed_at and self.finished >= self.logs // 2:
            self.killed_at = self.finished
            worker = next(iter(self._cluster.workers.values()))
            os.kill(worker.pid, signal.SIGKILL)


def write_ranks(samples: Path, folder: Path, ranks: int) -> int:
    """Write the log of each rank; return their bytes."""
    texts, total = [(samples / name).read_bytes() for name in SAMPLES], 0
    for rank in range(ranks):
        log = of_rank(texts[rank % len(texts)], rank)
        (folder / f"dedicated_log_torch_trace_rank_{rank}_bench.log").write_bytes(log)
        total += len(log)
    return total


def ingest(logs: Path, store: Path) -> None:
    """Read the logs with two dask workers, and kill one of them in the middle."""
    with cluster_of(2) as cluster:
        watcher, start = KillsAWorker(cluster), time.perf_counter()
        outcome = run_tasks(plan(str(logs), str(store)), DaskPool(cluster.scheduler_address), watcher)
        seconds = time.perf_counter() - start
    if outcome.failed or not watcher.killed_at:
        raise SystemExit(f"killed after {watcher.killed_at} logs; failed: {outcome.failed[:3]}")
    print(
        f"2 dask workers, one killed after {watcher.killed_at:,} of {outcome.logs:,} logs: {seconds:.1f} s,"
        f" {outcome.retries} logs had been started and were begun anew"
    )


def account(trace: Trace, store: Path, samples: Path, ranks: int) -> None:
    """Raise SystemExit unless every rank has the rows of its log once, and nothing else lies in the STORE."""
    of_sample = [_rows_of((samples / name).read_bytes(), rank) for rank, name in enumerate(SAMPLES)]
    expected: Counter[str] = Counter()
    for rank in range(ranks):
        expected.update(of_sample[rank % len(SAMPLES)])
    tables = [table for table in TABLES if table != "meta"]
    found = {table: int(sql.rows(trace, f"SELECT count(*) FROM {table}")[0][0]) for table in tables}
    by_rank: dict[int, int] = dict(
        sql.rows(trace, "SELECT l.rank, count(*) FROM records JOIN logs l USING (log) GROUP BY l.rank")
    )
    logs, ids = sql.rows(trace, "SELECT count(DISTINCT rank), (SELECT count(DISTINCT record) FROM records) FROM logs")[
        0
    ]
    contents = read_store(str(store))
    tries = sum(1 for _ in store.glob("units/*/*/begun"))
    wrong = [
        *(f"{table}: {found[table]} rows of {expected[table]}" for table in tables if found[table] != expected[table]),
        *(f"rank {rank}" for rank in range(ranks) if by_rank.get(rank) != of_sample[rank % len(SAMPLES)]["records"]),
        *([f"{logs} ranks of {ranks}, {ids} ids"] if (logs, ids) != (ranks, expected["records"]) else []),
        *([f"damaged: {contents.damaged}"] if contents.damaged else []),
        *([f"{tries} tries lie in the STORE"] if tries != ranks else []),
        *trace.notices,
    ]
    if wrong:
        raise SystemExit("the account is wrong: " + "; ".join(wrong[:5]))
    print(
        f"every rank is there once, with all its rows: {expected.total():,} in {sum(map(bool, found.values()))} tables"
    )


def _rows_of(log: bytes, rank: int) -> Counter[str]:
    """Return the number of rows of each table in an index of a log."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, f"dedicated_log_torch_trace_rank_{rank}_bench.log")
        path.write_bytes(of_rank(log, rank))
        with open_trace(path, index_dir=name) as trace:
            counts = {table: sql.rows(trace, f"SELECT count(*) FROM {table}")[0][0] for table in TABLES}
    return Counter({table: int(count) for table, count in counts.items() if table != "meta"})


@contextmanager
def measured(name: str) -> Iterator[None]:
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    print(f"  {name:<32}{time.perf_counter() - wall:7.2f} s {time.process_time() - cpu:7.2f} s of CPU")


def pages(store: Path, ranks: int) -> None:
    """Print what the first request of each page takes, and the median of further ones."""
    with open_trace(store) as trace:
        client, rank = Client(trace), ranks // 2
        log = sql.rows(trace, f"SELECT log FROM logs WHERE rank = {rank}")[0][0]
        compile_id = sql.rows(trace, f"SELECT min(compile_id) FROM compiles WHERE log = {log}")[0][0].replace("/", "_")
        for address in ("/", "/ranks", f"/compile?log={log}", f"/compile/{compile_id}?log={log}"):
            with measured(address):
                answer = client.get(address)
            if answer.status_code != 200:
                raise SystemExit(f"{address}: {answer.status_code}")
            again = statistics.median(_seconds(client.get, address) for _ in range(REPEATS))
            print(f"  {'  again':<32}{again:7.2f} s, {len(answer.content):,} bytes")


def _seconds(ask: Callable[[str], object], address: str) -> float:
    start = time.perf_counter()
    ask(address)
    return time.perf_counter() - start


def main() -> int:
    given = [int(size) for size in sys.argv[1:3]]
    ranks, few = (*given, *(RANKS, FEW)[len(given) :])
    samples = sample_folder()
    if samples is None:
        return 0
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_CACHE_HOME"] = str(Path(name, "cache"))
        logs, store = Path(name, "logs"), Path(name, "store")
        logs.mkdir()
        total = write_ranks(samples, logs, ranks)
        print(f"{ranks:,} ranks, {total / 1e6:.0f} MB of logs, {usable_cores()} cores, load {os.getloadavg()[0]:.1f}")
        ingest(logs, store)
        with measured("opening, the first time"):
            trace = open_trace(store)
        with trace:
            account(trace, store, samples, ranks)
        with measured("opening, again"):
            open_trace(store).close()
        pages(store, ranks)
    if few:
        scaling(samples, few)
    return 0


def scaling(samples: Path, ranks: int) -> None:
    """Print how much faster two workers are than one."""
    with tempfile.TemporaryDirectory() as name:
        total = write_ranks(samples, Path(name), ranks)
        print(f"{ranks:,} ranks, load {os.getloadavg()[0]:.1f}")
        one = report("dask, 1 worker", total, on_dask(Path(name), 1))
        report("dask, 2 workers", total, on_dask(Path(name), 2), one)


if __name__ == "__main__":
    sys.exit(main())
