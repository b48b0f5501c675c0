"""Which storages were alive at a place of a call, or at a moment of the run, and where they come from."""

from __future__ import annotations

from viewer.queries.rows_of_memory import Alive
from viewer.store.open import Trace

MOST_ROWS = 2000


def alive_in_call(
    trace: Trace, call: int, position: int | None = None, snode_index: int | None = None, limit: int = MOST_ROWS
) -> Alive | None:
    """What the call had while launch `position` ran, or while the launches of a scheduler node ran; without both at
    the call's measured peak. None when the call was not followed."""
    raise NotImplementedError


def alive_at(trace: Trace, log: int, ns: int, limit: int = MOST_ROWS) -> Alive | None:
    """Every storage that compiled calls have met and that was alive at `ns` (monotonic): also those that no running
    call knows. None when the log has no lifetimes."""
    raise NotImplementedError
