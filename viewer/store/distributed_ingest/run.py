"""Reads all logs of a folder into a STORE: plans the tasks, runs them, and retries those whose workers die."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from dataclasses import dataclass, field
from typing import Protocol

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest.log_files import find_log_files
from stepscope.viewer.store.distributed_ingest.pools import Pool
from stepscope.viewer.store.distributed_ingest.task import Done, Task, ingest_log
from stepscope.viewer.store.index import index_key
from stepscope.viewer.store.parquet.layout import MOST_UNITS, Root, Store, begin_store, is_store, read_store

MOST_TRIES = 3
Work = Callable[[Task], Done]


class Watcher(Protocol):
    """Receives the progress of a run."""

    def begin(self, logs: int, log_bytes: int) -> None: ...
    def done(self, task: Done) -> None: ...
    def retry(self, task: Task, reason: str) -> None: ...
    def end(self) -> None: ...


@dataclass
class Outcome:
    """The result of a run."""

    logs: int
    kept: int
    """The number of logs that were already in the STORE and have not changed."""
    done: list[Done] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    """The address of each log that is missing from the STORE, and the reason."""
    retries: int = 0


@dataclass(frozen=True)
class IngestPlan:
    tasks: list[Task]
    """The tasks that are still to be run."""
    kept: int


def plan(folder: str, store: str) -> IngestPlan:
    """Begin or continue the STORE. A log keeps its number, and is skipped if its tables are complete and current.

    Raises StepscopeError if there is no log or the STORE cannot be written.
    """
    logs, key = find_log_files(folder), index_key(())
    root = Root(store)
    old = _old_store(store, root)
    manifests = {manifest.log.address: manifest for manifest in old.manifests}
    numbers = {address: manifest.number for address, manifest in manifests.items()}
    taken = set(numbers.values())
    free = (number for number in range(MOST_UNITS) if number not in taken)
    todo = []
    for log in logs:
        manifest = manifests.get(log.address)
        if manifest and manifest.log == log and manifest.key == key and manifest.was_read:
            continue
        number = numbers[log.address] if manifest else next(free, None)
        if number is None:
            raise StepscopeError(f"{store} is full: it holds {MOST_UNITS:,} logs.")
        todo.append(Task(store, number, log, key))
    try:
        begin_store(root, list(dict.fromkeys([*old.logs, *(log.address for log in logs)])))
    except OSError as error:
        raise StepscopeError(f"{store} cannot be written: {error.strerror or error}.") from None
    return IngestPlan(todo, len(logs) - len(todo))


def _old_store(address: str, root: Root) -> Store:
    if is_store(address):
        store = read_store(address)
        for number in store.damaged:
            root.fs.rm(f"{root.path}/units/{number}", recursive=True)
        return store
    if root.fs.exists(root.path) and root.fs.ls(root.path, detail=False):
        raise StepscopeError(f"{address} is not a STORE and contains other files; name an empty or new folder.")
    return Store(root, [])


def run_tasks(planned: IngestPlan, pool: Pool, watcher: Watcher, work: Work = ingest_log) -> Outcome:
    """Run all tasks. A task that fails, or whose workers die, does not stop the others.

    Raises StepscopeError if the workers cannot be reached any more.
    """
    outcome = Outcome(len(planned.tasks) + planned.kept, planned.kept)
    watcher.begin(len(planned.tasks), sum(task.log.size_bytes for task in planned.tasks))
    try:
        _Run(pool, watcher, work, outcome).all(planned.tasks)
    finally:
        pool.close()
        watcher.end()
    return outcome


class _Run:
    """Runs tasks. A dying worker takes down the tasks of its pool. These are tried again one at a time, so that the
    next death has a known cause, and only a task that kills its own workers is given up."""

    def __init__(self, pool: Pool, watcher: Watcher, work: Work, outcome: Outcome) -> None:
        self._pool, self._watcher, self._work, self._outcome = pool, watcher, work, outcome
        self._running: dict[Future[Done], Task] = {}
        self._suspects: deque[Task] = deque()
        self._tries: Counter[int] = Counter()

    def all(self, tasks: Sequence[Task]) -> None:
        waiting = deque(tasks)
        while waiting or self._suspects or self._running:
            if self._suspects:
                if not self._running:
                    self._start(self._suspects.popleft())
            else:
                while waiting and len(self._running) < self._pool.width:
                    self._start(waiting.popleft())
            finished, _ = wait(self._running, return_when=FIRST_COMPLETED)
            died = [future for future in finished if not self._take(future)]
            if died:
                self._pool.renew()

    def _start(self, task: Task) -> None:
        try:
            future = self._pool.submit(self._work, task)
        except BrokenExecutor:
            self._pool.renew()
            future = self._pool.submit(self._work, task)
        self._running[future] = task

    def _take(self, future: Future[Done]) -> bool:
        """Take the result of a task. Return False if its worker died."""
        task = self._running.pop(future)
        try:
            done = future.result()
        except StepscopeError as error:
            self._give_up(task, str(error))
        except CancelledError:
            raise StepscopeError(
                "The workers cannot be reached any more; the same command continues from here."
            ) from None
        except BrokenExecutor:
            self._try_again(task, "its worker died")
            return False
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".split("\n", 1)[0]
            if self._pool.keeps_trying and type(error).__name__ == "KilledWorker":
                self._give_up(task, "its workers died")
            else:
                self._try_again(task, reason)
        else:
            if done.left_out is not None:
                self._give_up(task, done.left_out)
            else:
                self._outcome.done.append(done)
            self._outcome.retries += done.earlier_tries
            self._watcher.done(done)
        return True

    def _try_again(self, task: Task, reason: str) -> None:
        self._tries[task.number] += 1
        if self._tries[task.number] >= MOST_TRIES:
            self._give_up(task, f"{reason} (tried {MOST_TRIES} times)")
        else:
            self._suspects.append(task)
            self._watcher.retry(task, reason)

    def _give_up(self, task: Task, reason: str) -> None:
        self._outcome.failed.append((task.log.address, reason))
