"""A program adds up the losses of four or more forward passes and calls `backward()` for their sum, although each loss
could have a backward pass of its own: it is computed from results of compiled code, and nothing but leaves, such as
parameters, belongs to two of the losses, as the nodes of autograd show. What all of these forward passes save is alive
together then. It is reported if what is saved for the backward pass is at least half of the peak of the run, and 1 MiB,
and if as many calls of a forward graph as there are losses have saved a part of it. It is information, because a
program may have the memory. Without lifetimes nothing is told."""

from __future__ import annotations

from collections.abc import Mapping

from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, rule_of
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.memory.queries.peak_parts import parts_of
from stepscope.viewer.memory.queries.peak_rows import PeakParts
from stepscope.viewer.memory.queries.run import run_peaks
from stepscope.viewer.memory.queries.summed_losses import SumRow, longest_sums, saved_calls
from stepscope.viewer.memory.rows import RunPeak
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import format_bytes

SUMMARY = "One backward pass waits for the forward passes of several losses"
TITLE_IS_MEASURED = True

LEAST_SHARE, LEAST_BYTES = 0.5, 1 << 20


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per log and device whose peak consists of such tensors."""
    sums = longest_sums(evidence.trace)
    peaks = [peak for peak in run_peaks(evidence.trace) if peak.live_bytes and _waits(evidence.trace, sums, peak)]
    found = [_finding(evidence, sums[peak.log], parts_of(evidence.trace, peak)) for peak in peaks]
    return [one for one in found if one is not None]


def _waits(trace: Trace, sums: Mapping[int, SumRow], peak: RunPeak) -> bool:
    return peak.log in sums and saved_calls(trace, peak) >= sums[peak.log].losses


def _finding(evidence: Evidence, one: SumRow, parts: PeakParts) -> Timed | None:
    peak = parts.peak
    saved = sum(part.storage_bytes for part in parts.parts if part.kind == "saved for the backward pass")
    if saved < max(LEAST_BYTES, LEAST_SHARE * peak.live_bytes):
        return None
    return one.time_unix_ns, Finding(
        kind="summed_losses",
        severity="info",
        title=f"One backward pass{place(one.source)} waits for the forward passes of {one.losses:,} losses, and what"
        f" they save is alive together: {format_bytes(saved)} of the peak of {format_bytes(peak.live_bytes)}",
        proof=[
            "The losses have nothing in common but parameters and other leaves: a call of backward() for each loss"
            f" in turn adds up the same gradients, and keeps about {format_bytes(saved // one.losses)} at a time."
        ],
        rule=rule_of(__doc__),
        evidence={"losses": one.losses, "saved_bytes": saved, "peak_bytes": peak.live_bytes},
        page="/memory",
        rank=evidence.rank_of(one.log),
        step=peak.step,
        **attributes(one, "log", "source"),
    )
