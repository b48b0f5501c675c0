"""What workers are given in tests in place of `ingest_log`; UNIT_MARKS names a folder for what they leave."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

from stepscope.viewer.store.distributed_ingest import task as unit_module
from stepscope.viewer.store.distributed_ingest.task import Done, Task, ingest_log

MARKS = "UNIT_MARKS"
MOST_SECONDS = 600


def mark(name: str) -> Path:
    return Path(os.environ[MARKS], name)


def stopped_worker() -> str:
    """Process of the worker that `stops_at_2` stopped; empty before."""
    return mark("pid").read_text() if mark("pid").exists() else ""


def in_the_middle(unit: Task, happens: Callable[[], None]) -> Done:
    """A unit has been begun, and nothing of it is written."""
    read_logs = vars(unit_module)["read_logs"]

    def interrupted(*sources: Any, **options: Any) -> Any:
        happens()
        return read_logs(*sources, **options)

    with patch.object(unit_module, "read_logs", interrupted):
        return ingest_log(unit)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dies_once_at_1(unit: Task) -> Done:
    seen = mark("died")
    if unit.number != 1 or seen.exists():
        return ingest_log(unit)
    seen.touch()
    return in_the_middle(unit, die)


def always_dies_at_1(unit: Task) -> Done:
    if unit.number != 1:
        return ingest_log(unit)
    with mark("deaths").open("a") as file:
        file.write("x")
    return in_the_middle(unit, die)


def raises_once_at_1(unit: Task) -> Done:
    seen = mark("raised")
    if unit.number != 1 or seen.exists():
        return ingest_log(unit)
    seen.touch()

    def full() -> None:
        raise OSError(28, "No space left on device")

    return in_the_middle(unit, full)


def stops_at_2(unit: Task) -> Done:
    """Says which process it is, and waits in the middle of unit 2: once."""
    stopped = mark("pid")
    if unit.number != 2 or stopped.exists():
        return ingest_log(unit)

    def wait() -> None:
        part = mark("pid.part")
        part.write_text(str(os.getpid()))
        part.rename(stopped)
        time.sleep(MOST_SECONDS)

    return in_the_middle(unit, wait)


def loses_log_1(unit: Task) -> Done:
    if unit.number == 1:
        Path(unit.log.address).unlink(missing_ok=True)
    return ingest_log(unit)


class ThreadPool:
    """Threads of this process: for file systems that are in its memory."""

    keeps_trying = False
    width = 2

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1)

    def submit(self, work: Callable[[Task], Done], unit: Task) -> Future[Done]:
        return self._executor.submit(work, unit)

    def renew(self) -> None:
        raise AssertionError("threads do not die")

    def close(self) -> None:
        self._executor.shutdown()


class Quiet:
    """Watches, and keeps what it is told."""

    def __init__(self) -> None:
        self.done_units: list[Done] = []
        self.retries: list[tuple[int, str]] = []

    def begin(self, logs: int, log_bytes: int) -> None:
        self.logs, self.log_bytes = logs, log_bytes

    def done(self, unit: Done) -> None:
        self.done_units.append(unit)

    def retry(self, unit: Task, reason: str) -> None:
        self.retries.append((unit.number, reason))

    def end(self) -> None:
        self.ended = True
