"""Units on workers of dask.distributed, one of which is killed; nothing leaves this machine."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.store.distributed_ingest import pools
from stepscope.viewer.store.distributed_ingest.pools import DaskPool
from stepscope.viewer.store.distributed_ingest.run import Outcome, Work, plan, run_tasks
from tests.logs.store_logs import write_logs
from tests.viewer.store import task_work
from tests.viewer.store.task_work import Quiet
from tests.viewer.store.test_distributed_ingest import same_as_index
from tests.waiting import wait_for

distributed = pytest.importorskip("distributed")
pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.slow]  # those of dask's own processes and sockets


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    marks = tmp_path / "marks"
    marks.mkdir()
    monkeypatch.setenv(task_work.MARKS, str(marks))
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address=None,
        worker_dashboard_address=None,
        local_directory=str(tmp_path / "dask"),
        silence_logs=50,
    ) as running:
        yield running


def run(folder: Path, store: Path, scheduler: str, work: Work) -> tuple[Outcome, Quiet]:
    watcher = Quiet()
    return run_tasks(plan(str(folder), str(store)), DaskPool(scheduler), watcher, work), watcher


def test_a_killed_worker_costs_its_unit_a_retry(cluster: Any, tmp_path: Path) -> None:
    logs, store = tmp_path / "logs", tmp_path / "store"
    logs.mkdir()
    write_logs(logs)
    killed: list[int] = []

    def kill() -> None:
        killed.append(int(wait_for(task_work.stopped_worker)))
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    outcome, watcher = run(logs, store, cluster.scheduler_address, task_work.stops_at_2)
    killer.join()
    assert killed
    assert killed[0] != os.getpid()
    assert (len(outcome.done), outcome.failed) == (8, [])
    # dask gives the unit to another worker by itself: what the first had begun tells of it.
    assert [done.earlier_tries for done in watcher.done_units if done.number == 2] == [1]
    assert outcome.retries == 1
    assert watcher.retries == []
    same_as_index(logs, store, tmp_path)
    again, _ = run(logs, store, cluster.scheduler_address, task_work.stops_at_2)
    assert (again.kept, again.done) == (8, [])


def test_no_scheduler_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "CONNECT_S", 0.5)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # nobody else listens there meanwhile
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(StepscopeError, match=f"No dask scheduler answers at {address}"):
            DaskPool(address)
