"""The verdict: one module per kind of finding, each with its rule in its docstring."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from stepscope.viewer.errors import StepscopeError, reason_of
from stepscope.viewer.findings.evidence import Evidence

if TYPE_CHECKING:
    from stepscope.viewer.findings.evidence import Timed
    from stepscope.viewer.queries.rows_of_runs import Finding, NotRecorded
    from stepscope.viewer.store.open import Trace

_OF_RECORDERS = (
    "nonfinite", "uninitialised_read", "storage_overlap", "changed_without_writer", "lifetime_mismatch",
    "recompute_mismatch", "estimate_gap", "growth", "crash", "exception", "not_recorded",
)  # fmt: skip
"""Found in logs that a recorder wrote."""
_OF_COMPILES = "recompile_limit", "recompile", "graph_break", "compile_failure", "cache_bypass"
"""Found where there are compile events of the same name."""
_OF_EXPORTS = ("draft_export",)
_OF_RANKS = ("rank_divergence",)
_OF_LOGS = ("unread_log",)
KINDS = (*_OF_RECORDERS, *_OF_COMPILES, *_OF_EXPORTS, *_OF_RANKS, *_OF_LOGS)
"""Names of modules: those that can find nothing in a trace are not imported for it, which takes time."""
_ORDER = ("critical", "warning", "info")
_LAST = 2**63
"""Of what has no time."""


def all_findings(trace: Trace) -> list[Finding]:
    """Every finding: critical ones, warnings, then the rest; within one severity by time. A kind that could not be
    looked for is one of the warnings."""
    return [*trace.once(_find_all)]


def gaps(trace: Trace) -> list[NotRecorded]:
    """Kinds that could not be looked for, and why."""
    from stepscope.viewer.queries.rows_of_runs import NotRecorded

    found = [finding.evidence for finding in all_findings(trace) if is_gap(finding)]
    return [NotRecorded(f"findings: {gap['kind']}", gap["why"], None, None, 1) for gap in found]


def is_gap(finding: Finding) -> bool:
    """Whether it says that a kind could not be looked for."""
    return finding.kind == "not_recorded" and "kind" in finding.evidence


def _find_all(trace: Trace) -> list[Finding]:
    evidence = Evidence(trace)
    timed: list[Timed] = []
    for kind in KINDS:
        try:
            if _is_possible(kind, evidence):
                timed += import_module(f"{__name__}.{kind}").find(evidence)
        except StepscopeError:
            raise
        except Exception as error:
            timed.append((_LAST, _gap(kind, error)))
    timed.sort(key=lambda pair: (_ORDER.index(pair[1].severity), pair[0]))
    return [finding for _, finding in timed]


def _is_possible(kind: str, evidence: Evidence) -> bool:
    if kind in _OF_RECORDERS:
        return evidence.is_recorded
    if kind in _OF_COMPILES:
        return bool(evidence.compile_events(kind))
    if kind in _OF_LOGS:
        return bool(evidence.unread_logs)
    return evidence.has_exports if kind in _OF_EXPORTS else len(evidence.runs) > 1


def _gap(kind: str, error: Exception) -> Finding:
    from stepscope.viewer.queries.rows_of_runs import Finding

    why = reason_of(error)
    return Finding(
        kind="not_recorded",
        severity="warning",
        title=f"Findings of the kind {kind} were not looked for ({why})",
        rule="Something in a log kept this kind of finding from being looked for. All other kinds were looked for.",
        evidence={"kind": kind, "why": why},
        page="/problems#not-recorded",
    )
