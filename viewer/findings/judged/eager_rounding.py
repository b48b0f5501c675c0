"""In a judged step, compiled and eager code differ, and the compiled value is the one that agrees with float64. Eager
code rounds in between, or overflows, where the kernel does not. This is not a compiler error."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, grouped, rule_of
from stepscope.viewer.findings.judged.shown import evidence_of, links_of, page_of, recomputed, three_values
from stepscope.viewer.findings.values.operations import source_line
from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.judged.queries.judged import judged_buffers
from stepscope.viewer.judged.rows import JudgedBufferRow
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.text.formats import plural

SUMMARY = "Compiled code agrees with float64 and eager code does not: this is rounding, not a compiler error"
TITLE_IS_MEASURED = True


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per log, at the launch where eager code is furthest off."""
    off = [row for row in judged_buffers(evidence.trace) if row.verdict == "eager_off"]
    return [_finding(evidence, group) for group in grouped(off, lambda row: row.log)]


def _finding(evidence: Evidence, group: list[JudgedBufferRow]) -> Timed:
    row = max(group, key=_eager_error)
    (site,) = site_rows(evidence.trace, [row.site])
    launches = len({(one.graph, one.site) for one in group})
    compiled, eager = _relative("to", row.compiled, row.float64), _relative("by", row.eager, row.float64)
    return row.time_unix_ns, Finding(
        kind="eager_rounding",
        severity="info",
        title=(
            f"Compiled code agrees with float64{compiled} and eager code is off{eager}, in {plural(launches, 'launch')}"
            ": this is rounding, not a compiler error"
        ),
        rule=rule_of(__doc__),
        evidence={**evidence_of(evidence.trace, row), "launch_sites": launches},
        page=page_of(row),
        rank=evidence.rank_of(row.log),
        source=row.source or source_line(site),
        proof=[three_values(row), *([f"The judge recomputed {recomputed(row)}"] if row.fragment else [])],
        links=links_of(row),
        argument=row.buffer,
        **attributes(row, "step", "graph", "launch", "kernel", "buffer", "log"),
    )


def _eager_error(row: JudgedBufferRow) -> float:
    if row.eager is None or row.float64 is None or row.eager != row.eager:
        return float("inf")
    return abs(row.eager - row.float64) / (abs(row.float64) or 1.0)


def _relative(word: str, value: float | None, reference: float | None) -> str:
    """Return the relative error of a value as text, or "" if it has none."""
    if value is None or not reference or value != value or abs(value) == float("inf"):
        return "" if value is not None and value == value else " (it is not finite)"
    return f" {word} {abs(value - reference) / abs(reference):.1g}"
