"""All logs of a folder into a STORE: what is to be done, by whom, and what becomes of units whose workers die."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from dataclasses import dataclass, field
from typing import Protocol

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest.log_files import find_log_files
from stepscope.viewer.store.distributed_ingest.pools import Pool
from stepscope.viewer.store.distributed_ingest.task import Done, Unit, ingest_unit
from stepscope.viewer.store.index import index_key
from stepscope.viewer.store.parquet.layout import MOST_UNITS, Root, Store, begin_store, is_store, read_store

MOST_TRIES = 3
Work = Callable[[Unit], Done]


class Watcher(Protocol):
    """Is told how it goes on."""

    def begin(self, logs: int, log_bytes: int) -> None: ...
    def done(self, unit: Done) -> None: ...
    def retry(self, unit: Unit, reason: str) -> None: ...
    def end(self) -> None: ...


@dataclass
class Outcome:
    """What a run has done."""

    logs: int
    kept: int
    """Were in the STORE already, as they are."""
    done: list[Done] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    """(address of a log, why it is not in the STORE)."""
    retries: int = 0


@dataclass(frozen=True)
class Plan:
    units: list[Unit]
    """What is to be done."""
    kept: int


def plan(folder: str, store: str) -> Plan:
    """Begin or continue the STORE: a log keeps its number, and is left alone where its unit is as it should be.

    Raises StepscopeError when there is no log, or the STORE cannot be written.
    """
    logs, key = find_log_files(folder), index_key(())
    root = Root(store)
    old = _old_store(store, root)
    units = {unit.log.address: unit for unit in old.units}
    numbers = {address: unit.number for address, unit in units.items()}
    taken = set(numbers.values())
    free = (number for number in range(MOST_UNITS) if number not in taken)
    todo = []
    for log in logs:
        unit = units.get(log.address)
        if unit and unit.log == log and unit.key == key and unit.was_read:
            continue
        number = numbers[log.address] if unit else next(free, None)
        if number is None:
            raise StepscopeError(f"{store} is full: it holds {MOST_UNITS:,} logs.")
        todo.append(Unit(store, number, log, key))
    try:
        begin_store(root, list(dict.fromkeys([*old.logs, *(log.address for log in logs)])))
    except OSError as error:
        raise StepscopeError(f"{store} cannot be written: {error.strerror or error}.") from None
    return Plan(todo, len(logs) - len(todo))


def _old_store(address: str, root: Root) -> Store:
    if is_store(address):
        store = read_store(address)
        for unit in store.damaged:
            root.fs.rm(f"{root.path}/units/{unit}", recursive=True)
        return store
    if root.fs.exists(root.path) and root.fs.ls(root.path, detail=False):
        raise StepscopeError(f"{address} is no STORE and holds other files: name an empty or a new folder.")
    return Store(root, [])


def run_units(planned: Plan, pool: Pool, watcher: Watcher, work: Work = ingest_unit) -> Outcome:
    """Run all units; one that fails, or whose workers die, keeps no other from being done.

    Raises StepscopeError when the workers cannot be reached any more.
    """
    outcome = Outcome(len(planned.units) + planned.kept, planned.kept)
    watcher.begin(len(planned.units), sum(unit.log.size_bytes for unit in planned.units))
    try:
        _Run(pool, watcher, work, outcome).all(planned.units)
    finally:
        pool.close()
        watcher.end()
    return outcome


class _Run:
    """A worker that dies takes what others of its pool do with it. What ran then is tried again one by one, so that
    the next death is certainly its own: only the unit that kills its workers is given up."""

    def __init__(self, pool: Pool, watcher: Watcher, work: Work, outcome: Outcome) -> None:
        self._pool, self._watcher, self._work, self._outcome = pool, watcher, work, outcome
        self._running: dict[Future[Done], Unit] = {}
        self._suspects: deque[Unit] = deque()
        self._tries: Counter[int] = Counter()

    def all(self, units: Sequence[Unit]) -> None:
        waiting = deque(units)
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

    def _start(self, unit: Unit) -> None:
        try:
            future = self._pool.submit(self._work, unit)
        except BrokenExecutor:
            self._pool.renew()
            future = self._pool.submit(self._work, unit)
        self._running[future] = unit

    def _take(self, future: Future[Done]) -> bool:
        """False where the worker has died."""
        unit = self._running.pop(future)
        try:
            done = future.result()
        except StepscopeError as error:
            self._give_up(unit, str(error))
        except CancelledError:
            raise StepscopeError(
                "The workers cannot be reached any more; the same command goes on from here."
            ) from None
        except BrokenExecutor:
            self._try_again(unit, "its worker died")
            return False
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".split("\n", 1)[0]
            if self._pool.keeps_trying and type(error).__name__ == "KilledWorker":
                self._give_up(unit, "its workers died")
            else:
                self._try_again(unit, reason)
        else:
            if done.left_out is not None:
                self._give_up(unit, done.left_out)
            else:
                self._outcome.done.append(done)
            self._outcome.retries += done.earlier_tries
            self._watcher.done(done)
        return True

    def _try_again(self, unit: Unit, reason: str) -> None:
        self._tries[unit.number] += 1
        if self._tries[unit.number] >= MOST_TRIES:
            self._give_up(unit, f"{reason} (tried {MOST_TRIES} times)")
        else:
            self._suspects.append(unit)
            self._watcher.retry(unit, reason)

    def _give_up(self, unit: Unit, reason: str) -> None:
        self._outcome.failed.append((unit.log.address, reason))
