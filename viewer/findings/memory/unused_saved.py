"""Builds the findings about memory that grew because several calls saved tensors for no backward pass."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import names_text
from stepscope.viewer.memory.queries.graph_index import graph_index, named_graph
from stepscope.viewer.memory.queries.unused_saved import PiledUp, piled_up
from stepscope.viewer.overview.rows import Finding, Severity
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import basename, capitalized, format_bytes, holder_text

LEAST_BYTES, LEAST_SHARE, WARNED_BYTES, WARNED_SHARE = 256 << 10, 0.1, 1 << 20, 0.5
"""Bytes that are told, and that are worth a warning, and their share of the peak of the run."""
_OF_EXCEPTIONS = (
    "An exception keeps the local variables of all functions that it came through: keep its text instead, or call"
    " with_traceback(None) on it."
)


def of_unused_saved(trace: Trace, peaks: dict[int, int], ranks: dict[int, int | None], rule: str) -> list[Finding]:
    """Return one finding for each graph; `peaks` are the peaks of the runs by log."""
    return [
        _finding(trace, one, peaks[one.log], ranks.get(one.log), rule)
        for one in piled_up(trace)
        if one.storage_bytes >= max(LEAST_BYTES, LEAST_SHARE * peaks.get(one.log, 0)) and peaks.get(one.log)
    ]


def _finding(trace: Trace, one: PiledUp, peak_bytes: int, rank: int | None, rule: str) -> Finding:
    size, share = format_bytes(one.storage_bytes), one.storage_bytes / peak_bytes
    severity: Severity = "warning" if one.storage_bytes >= WARNED_BYTES and share >= WARNED_SHARE else "info"
    places = graph_index(trace, one.graph)
    of_peak = f"{share:.0%} of".replace("%", " %") if share <= 1 else f"{share:.1f} times"
    return Finding(
        kind="growth",
        severity=severity,
        title=f"{capitalized(named_graph(trace, one.graph))} kept {size} of {one.calls:,} calls"
        " for a backward pass that did not run",
        rule=rule,
        evidence={
            "storage_bytes": one.storage_bytes,
            "peak_bytes": peak_bytes,
            "share": round(share, 4),
            "calls": one.calls,
            "first_step": one.first_step,
            "last_step": one.last_step,
            "buffers": one.buffers,
            "holders": one.holders,
        },
        proof=[
            *_calls(one),
            f"This is {of_peak} the peak of the run; {names_text(one.buffers)} of steps {one.first_step} to"
            f" {one.last_step} stayed alive together.",
            *(f"It is held by {holder_text(holder)}." for holder in one.holders),
            *([_OF_EXCEPTIONS] if any("traceback" in holder for holder in one.holders) else []),
            "Keeping a result of these calls, or a loss computed from it, keeps all of this alive. Calls under"
            " torch.no_grad() save nothing, and loss.item() and loss.detach() keep nothing alive.",
        ],
        page=f"/graphs/{one.graph}/memory",
        rank=rank,
        step=one.last_step,
        graph=one.graph,
        buffer=one.buffers[0],
        log=one.log,
        source=one.called_at or places.source(places.writer(one.buffers[0])),
    )


def _calls(one: PiledUp) -> list[str]:
    at = one.called_at
    return [f"The first of these calls is made at {basename(at.file)}:{at.line}."] if at is not None else []
