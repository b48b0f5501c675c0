"""A launch of a judged step wrote something other than PyTorch's own operators compute from the inputs that it read.
The error against float64 exceeds what rounding explains: a multiple of the error of eager code, and of the change when
the inputs move by half a unit in the last place. Earlier errors do not count, because the inputs are those that were
read. Two kernels are named if one of them is wrong and the value between them could not be judged."""

from __future__ import annotations

from math import inf

from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, grouped, program_name, rule_of
from stepscope.viewer.findings.judged.shown import (
    evidence_of,
    how_many,
    links_of,
    of_limit,
    page_of,
    recomputed,
    three_values,
)
from stepscope.viewer.findings.values.operations import source_line
from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.judged.queries.judged import judged_buffers, launch_at
from stepscope.viewer.judged.rows import JudgedBufferRow
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import plural

SUMMARY = "A kernel computes wrong values"
TITLE_IS_MEASURED = True


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per launch site, with its worst buffer."""
    wrong = [row for row in judged_buffers(evidence.trace) if row.verdict in ("wrong", "suspect")]
    groups = grouped(wrong, lambda row: (row.log, row.graph, row.site))
    return [_finding(evidence, group) for group in groups]


def _finding(evidence: Evidence, group: list[JudgedBufferRow]) -> Timed:
    trace: Trace = evidence.trace
    row = max(group, key=_tells)
    (site,) = site_rows(trace, [row.site])
    buffer = program_name(trace, row.graph, row.buffer)
    buffers = list(dict.fromkeys(one.buffer for one in group))
    suspects = sorted({name for one in row.suspects if (name := launch_at(trace, row.call, one)[1]) is not None})
    who = " or ".join([row.kernel, *suspects])
    others = f" and {plural(len(buffers) - 1, 'other buffer')}" if len(buffers) > 1 else ""
    return min(one.time_unix_ns for one in group), Finding(
        kind="wrong_kernel",
        severity="critical",
        title=f"{who} computes wrong values of {buffer}{others}: {how_many(row)}, {of_limit(row)}",
        rule=rule_of(__doc__),
        evidence={
            **evidence_of(trace, row),
            "buffers": buffers,
            "or": suspects,
            "launches": len({one.launch for one in group}),
        },
        page=page_of(row),
        rank=evidence.rank_of(row.log),
        source=row.source or source_line(site),
        proof=[
            three_values(row),
            f"The judge recomputed it from {', '.join(row.inputs[:6]) or 'no input'}: {recomputed(row)}",
        ],
        links=links_of(row),
        argument=row.buffer,
        **attributes(row, "step", "graph", "launch", "kernel", "buffer", "log"),
    )


def _tells(row: JudgedBufferRow) -> tuple[bool, float]:
    """Order wrong buffers by how much they tell: floating-point numbers with a large error tell most."""
    return "float" in row.dtype, inf if row.of_limit is None else row.of_limit
