"""`stepscope ingest`: plan, run, and what to say of it."""

from __future__ import annotations

from collections.abc import Callable

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.overview.summary_text import clean
from stepscope.viewer.store.distributed_ingest.pools import DaskPool, LocalPool, Pool
from stepscope.viewer.store.distributed_ingest.progress import watcher
from stepscope.viewer.store.distributed_ingest.run import Outcome, plan, run_units
from stepscope.viewer.text.formats import format_bytes

MOST_NAMED = 10


def ingest(folder: str, store: str, scheduler: str | None, workers: int | None, say: Callable[[str], None]) -> None:
    """Read the logs of `folder` into `store`.

    Raises StepscopeError when there is nothing to read, the workers or the STORE cannot be reached, or, after all
    others were read, for the logs that are not in the STORE.
    """
    if scheduler is not None and workers is not None:
        raise StepscopeError("--workers is for processes of this machine; a scheduler has its own workers.")
    planned = plan(folder, store)
    if planned.units:
        outcome = run_units(planned, _pool(scheduler, workers), watcher())
    else:
        outcome = Outcome(planned.kept, planned.kept)
    for address, reason in outcome.failed[:MOST_NAMED]:
        say(clean(f"{address}: {reason}"))
    say(clean(outcome_text(outcome, store)))
    if outcome.failed:
        raise StepscopeError(
            f"{len(outcome.failed):,} of {outcome.logs:,} logs are not in {store}; the same command tries them again."
        )


def outcome_text(outcome: Outcome, store: str) -> str:
    """What a run has done, in a line."""
    read, written = (sum(getattr(done, size) for done in outcome.done) for size in ("log_bytes", "parquet_bytes"))
    parts = [f"{outcome.logs - len(outcome.failed):,} logs in {store}"]
    if outcome.kept:
        parts.append(f"{outcome.kept:,} were there already")
    if outcome.done:
        parts.append(f"{format_bytes(read)} became {format_bytes(written)}")
    if outcome.retries:
        parts.append(f"{outcome.retries:,} had been begun before and never finished")
    return "; ".join(parts)


def _pool(scheduler: str | None, workers: int | None) -> Pool:
    return LocalPool(workers) if scheduler is None else DaskPool(scheduler)
