"""Storages that did not live as expected, what steps left behind, and figures that a reordering pass got wrong."""

from __future__ import annotations

from viewer.queries.rows_of_memory import (
    GrowthRow,
    LeftBehindRow,
    LifetimeMismatchRow,
    RecomputeDetail,
    RecomputeRow,
)
from viewer.store.open import Trace


def lifetime_mismatches(trace: Trace, graph: int | None = None) -> list[LifetimeMismatchRow]:
    """All of them, or those of one graph, in the order in which they were found."""
    raise NotImplementedError


def left_behind(trace: Trace, log: int | None = None) -> list[LeftBehindRow] | None:
    """Storages of earlier steps that were alive at the end, largest first; None when nobody looked."""
    raise NotImplementedError


def growth(trace: Trace) -> list[GrowthRow] | None:
    """Buffers that each of the last steps has left behind, most bytes per step first; None when nobody looked."""
    raise NotImplementedError


def recompute_mismatches(trace: Trace) -> list[RecomputeRow]:
    """All of them in the order in which they were found."""
    raise NotImplementedError


def recompute_detail(trace: Trace, recompute: int) -> RecomputeDetail | None:
    """One of them; None when there is none of that id."""
    raise NotImplementedError
