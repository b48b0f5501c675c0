"""Memory of two graphs, or of one graph in two calls, side by side; estimates against what was measured."""

from __future__ import annotations

from viewer.queries.rows_of_memory import EstimateGap, MemoryComparison
from viewer.store.open import Trace


def compare_memory(
    trace: Trace, left: int, right: int, left_call: int | None = None, right_call: int | None = None
) -> MemoryComparison | None:
    """Graphs `left` and `right` (may be one graph), each at the measured peak of its call; without a call that of the
    highest peak. None when one of them has nothing about memory."""
    raise NotImplementedError


def estimate_gaps(trace: Trace) -> list[EstimateGap]:
    """Graphs whose measured peak differs from the estimated one, the largest gap first, with what makes it."""
    raise NotImplementedError
