"""The pools that run the tasks: processes of this machine, or the workers of a dask scheduler."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import suppress
from typing import Any, Protocol

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.store.distributed_ingest.task import Done, Task

CONNECT_S = 10


class Pool(Protocol):
    """Workers that may die."""

    @property
    def width(self) -> int:
        """The number of tasks that are submitted at once."""

    @property
    def keeps_trying(self) -> bool:
        """Whether the pool itself retries a task whose worker died, so that another try is useless."""

    def submit(self, work: Callable[[Task], Done], task: Task) -> Future[Done]: ...

    def renew(self) -> None:
        """Continue after workers have died."""

    def close(self) -> None:
        """Release the workers; unfinished tasks are abandoned."""


class LocalPool:
    """Processes of this machine. One that dies takes the others with it, and `renew` starts new ones."""

    keeps_trying = False

    def __init__(self, workers: int | None) -> None:
        self.width = workers or usable_cores()
        self._executor = self._start()

    def submit(self, work: Callable[[Task], Done], task: Task) -> Future[Done]:
        return self._executor.submit(work, task)

    def renew(self) -> None:
        self._executor.shutdown(wait=False)
        self._executor = self._start()

    def close(self) -> None:
        processes = list((self._executor._processes or {}).values())
        self._executor.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()

    def _start(self) -> ProcessPoolExecutor:
        # Threads of this process may hold locks, which a forked one would wait for.
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self.width, mp_context=context, initializer=_begin_worker)


class DaskPool:
    """The workers of a scheduler of dask.distributed."""

    keeps_trying = True

    def __init__(self, address: str) -> None:
        """Raises StepscopeError if dask is not installed or nobody answers at `address`."""
        try:
            import distributed
        except ImportError:
            raise StepscopeError("--scheduler needs dask: pip install 'stepscope[distributed]'") from None
        try:
            self._client: Any = distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise StepscopeError(f"No dask scheduler answers at {address}: {error}") from None
        # By default dask reuses the result of a call with the same arguments.
        self._executor: Executor = self._client.get_executor(pure=False)
        self.width = 1 << 20

    def submit(self, work: Callable[[Task], Done], task: Task) -> Future[Done]:
        return self._executor.submit(work, task)

    def renew(self) -> None:
        """Do nothing; the scheduler replaces workers."""

    def close(self) -> None:
        self._executor.shutdown(wait=False)
        self._client.close()


def usable_cores() -> int:
    """Return the number of processes that can run at once on this machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _begin_worker() -> None:
    """Let a worker end silently when the user stops the command or the command dies."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        with suppress(OSError):
            parent.join()
        os._exit(1)
