"""The measured peak memory of a graph exceeds the scheduler's estimate by more than 25 % and more than 1 MiB. Both
figures cover the buffers that the graph makes and the inputs that it may free, but no weights and no other inputs. With
dynamic shapes the estimate holds for one set of sizes, so calls with other sizes and sizes that depend on data are not
compared. There is one finding per graph, with the buffers that the estimate did not count at the measured peak."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import MOST_EXAMPLES, Evidence, Timed, attributes, rule_of
from stepscope.viewer.memory.queries.compare import estimate_gaps
from stepscope.viewer.memory.queries.graph_index import moment_of
from stepscope.viewer.memory.rows import EstimateGap, GapBuffer
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import format_bytes

SUMMARY = "Measured and estimated memory differ"
TITLE_IS_MEASURED = True

LEAST_SHARE, LEAST_BYTES = 0.25, 1 << 20


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per graph, at the call with the highest measured peak."""
    gaps = estimate_gaps(evidence.trace, LEAST_SHARE, LEAST_BYTES)
    return [_finding(evidence.trace, gap) for gap in gaps]


def _finding(trace: Trace, gap: EstimateGap) -> Timed:
    graph = gap.label.removeprefix("graph ")
    moment, largest = moment_of(trace, gap.call), gap.buffers[0] if gap.buffers else None
    share = 100 * gap.gap_bytes / gap.estimated.peak_bytes if gap.estimated.peak_bytes else None
    over = f"{share:.0f} % " if share is not None else ""
    return moment.time_unix_ns, Finding(
        kind="estimate_gap",
        severity="info",
        title=(
            f"Graph {graph} takes {format_bytes(gap.measured.peak_bytes)} at its peak, {over}more "
            f"than the scheduler's estimate of {format_bytes(gap.estimated.peak_bytes)}"
        ),
        proof=[_proof(largest)] if largest else [],
        rule=rule_of(__doc__),
        evidence={
            "measured_peak_bytes": gap.measured.peak_bytes,
            "estimated_peak_bytes": gap.estimated.peak_bytes,
            "gap_bytes": gap.gap_bytes,
            "measured_snode": gap.measured.snode,
            "measured_index": gap.measured.snode_index,
            "measured_kernel": gap.measured.kernel,
            "estimated_snode": gap.estimated.snode,
            "estimated_index": gap.estimated.snode_index,
            "buffers": [
                {"buffer": buffer.name, **attributes(buffer, "measured_bytes", "expected_bytes", "why")}
                for buffer in gap.buffers[:MOST_EXAMPLES]
            ],
        },
        page=f"/graphs/{gap.graph}/memory?call={gap.call}",
        rank=moment.rank,
        kernel=gap.measured.kernel,
        buffer=largest.name if largest else None,
        source=largest.source if largest and largest.source else gap.measured.source,
        **attributes(gap, "step", "graph", "log"),
    )


def _proof(buffer: GapBuffer) -> str:
    return (
        f"The largest part of the difference is {buffer.name}: {buffer.why} "
        f"({format_bytes(buffer.measured_bytes)} measured, {format_bytes(buffer.expected_bytes)} estimated)."
    )
