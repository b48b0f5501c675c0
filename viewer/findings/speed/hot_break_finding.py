"""Builds the findings about graph breaks that take much of each step."""

from __future__ import annotations

import re

from stepscope.viewer.compiles.queries.break_text import hints_in
from stepscope.viewer.findings.evidence import MOST_EXAMPLES, Evidence, Timed, place_of
from stepscope.viewer.findings.speed.costs import HotBreak, amount, facts_of, hot_breaks, severity_of, step_page
from stepscope.viewer.overview.rows import Finding, ProofLink

_READS = re.compile(
    r"\.item\(\)|_local_scalar_dense"
    r"|\.tolist\(\)|\.cpu\(\)|\.numpy\(\)|nonzero|[Dd]ata.dependent|Dynamic shape operator"
)
"""Causes of breaks at which the host needs a value that the device computes."""


def of_breaks(evidence: Evidence, kind: str, rule: str, *, reads: bool) -> list[Timed]:
    """Return the findings about breaks at which the host reads a value, or about all others."""
    return [_finding(evidence, one, kind, rule) for one in hot_breaks(evidence) if _reads(one) == reads]


def _reads(one: HotBreak) -> bool:
    first = one.events[0]
    return _READS.search(f"{first.cause} {first.text}") is not None


def _finding(evidence: Evidence, one: HotBreak, kind: str, rule: str) -> Timed:
    run, part, first = one.run, one.part, one.events[0]
    what = "the host needs a value that the graph computed" if _reads(one) else first.cause
    hints = hints_in(first.text)
    return first.time_ns, Finding(
        kind=kind,
        severity=severity_of(one.share),
        title=f"{amount(part.duration_ns, run.typical_ns)} is host work at the graph break in {part.place}: {what}",
        rule=rule,
        evidence={
            **facts_of(run, part.duration_ns),
            "breaks": len({(event.log, event.compile_id) for event in one.events}),
            "compile_ids": list(dict.fromkeys(event.compile_id for event in one.events))[:MOST_EXAMPLES],
            "cause": first.cause,
            "explanation": first.text[:2000],
        },
        proof=[f"PyTorch's hint: {' '.join(hints[0].split())}"] if hints else [],
        links=[ProofLink("open the graph break", f"/graph-breaks?break={first.record}")],
        **{**place_of(first), "page": step_page(evidence, run)},
    )
