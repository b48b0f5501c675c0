"""`stepscope ingest`: plans the work, runs it and reports the result."""

from __future__ import annotations

from collections.abc import Callable

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.store.distributed_ingest.pools import DaskPool, LocalPool, Pool
from stepscope.viewer.store.distributed_ingest.progress import watcher
from stepscope.viewer.store.distributed_ingest.run import Outcome, plan, run_tasks
from stepscope.viewer.text.clean import clean
from stepscope.viewer.text.formats import format_bytes, plural

MOST_NAMED = 10


def ingest(folder: str, store: str, scheduler: str | None, workers: int | None, say: Callable[[str], None]) -> None:
    """Read the logs of `folder` into `store`.

    Raises StepscopeError if there is nothing to read, the workers or the STORE cannot be reached, or some logs are
    missing from the STORE after all others were read.
    """
    if scheduler is not None and workers is not None:
        raise StepscopeError(
            "--workers is the number of processes on this machine, but a scheduler has its own workers. Give only one."
        )
    planned = plan(folder, store)
    if planned.tasks:
        outcome = run_tasks(planned, _pool(scheduler, workers), watcher())
    else:
        outcome = Outcome(planned.kept, planned.kept)
    for address, reason in outcome.failed[:MOST_NAMED]:
        say(clean(f"{address}: {reason}"))
    say(clean(outcome_text(outcome, store)))
    if outcome.failed:
        failed = len(outcome.failed)
        are = "is" if failed == 1 else "are"
        raise StepscopeError(
            f"{failed:,} of {plural(outcome.logs, 'log')} {are} missing from {store}. "
            "Run the same command to try again."
        )


def outcome_text(outcome: Outcome, store: str) -> str:
    """Return the result of a run in one line."""
    read, written = (sum(getattr(done, size) for done in outcome.done) for size in ("log_bytes", "parquet_bytes"))
    parts = [f"{store} holds {plural(outcome.logs - len(outcome.failed), 'log')}"]
    if outcome.kept:
        parts.append(f"{outcome.kept:,} of them from earlier runs")
    if outcome.done:
        parts.append(f"{format_bytes(read)} became {format_bytes(written)}")
    if outcome.retries:
        parts.append(f"{outcome.retries:,} had been started earlier and not finished")
    return "; ".join(parts)


def _pool(scheduler: str | None, workers: int | None) -> Pool:
    return LocalPool(workers) if scheduler is None else DaskPool(scheduler)
