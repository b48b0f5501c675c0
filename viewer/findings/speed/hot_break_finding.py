"""Builds the findings about graph breaks that take much of each step."""

from __future__ import annotations

import re

from stepscope.viewer.compiles.queries.break_text import hints_in
from stepscope.viewer.findings.compiles.called_at_breaks import called_at_breaks, explained, what_is_called
from stepscope.viewer.findings.evidence import MOST_EXAMPLES, Evidence, Timed, place_of
from stepscope.viewer.findings.speed.costs import amount, facts_of, severity_of, step_page
from stepscope.viewer.findings.speed.hot_breaks import HotBreak, hot_breaks
from stepscope.viewer.overview.rows import Finding, ProofLink
from stepscope.viewer.text.formats import basename

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
    run, part_ns, first = one.run, one.part_ns, one.events[0]
    cause = "the host needs a value that the graph computed" if _reads(one) and not one.is_whole else first.cause
    place = f"{basename(first.source.file)}:{first.source.line}" if first.source else first.name
    extent = "all of" if first.status == "fallback" else "the rest of"
    takes = f"takes {amount(part_ns, run.typical_ns)}"
    title = (
        f"Code that is not compiled {takes}, because the graph break in {place} makes Python run {extent} {first.name}"
        if one.is_whole
        else f"Host work at the graph break in {place} {takes}"
    )
    hints = hints_in(first.text)
    called = called_at_breaks(evidence).events.get((first.file, first.line), ())
    more = what_is_called(evidence.trace, called).proof
    return first.time_ns, Finding(
        kind=kind,
        severity=severity_of(one.share),
        title=f"{title}: {cause}",
        rule=rule,
        evidence={
            **facts_of(run, part_ns),
            "breaks": len({(event.log, event.compile_id) for event in one.events}),
            "compile_ids": list(dict.fromkeys(event.compile_id for event in one.events))[:MOST_EXAMPLES],
            "cause": first.cause,
            "explanation": first.text[:2000],
        },
        proof=[*explained(first), *([f"PyTorch's hint: {' '.join(hints[0].split())}"] if hints else []), *more],
        links=[ProofLink("open the graph break", f"/graph-breaks?break={first.record}")],
        **{**place_of(first), "page": step_page(evidence, run)},
    )
