"""Live bytes over the whole run: the curve in a window, its peak, and the figures of the summary."""

from __future__ import annotations

from viewer.queries.rows_of_memory import LiveCurve, RunPeak
from viewer.store.open import Trace


def has_lifetimes(trace: Trace) -> bool:
    raise NotImplementedError


def live_curve(
    trace: Trace,
    log: int,
    start_ns: int | None = None,
    end_ns: int | None = None,
    width: int = 1600,
    device: str | None = None,
) -> LiveCurve | None:
    """The curve in a window (monotonic ns), at most about two points a pixel; without `device` that of the device
    with the highest peak. None when the log has no lifetimes."""
    raise NotImplementedError


def run_peaks(trace: Trace) -> list[RunPeak]:
    """The highest point of each log and device, the highest first."""
    raise NotImplementedError
