"""The verdict: one module per kind of finding, each with its rule in its docstring."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from stepscope.viewer.findings.evidence import Evidence

if TYPE_CHECKING:
    from stepscope.viewer.findings.evidence import Timed
    from stepscope.viewer.queries.rows_of_runs import Finding
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
KINDS = (*_OF_RECORDERS, *_OF_COMPILES, *_OF_EXPORTS, *_OF_RANKS)
"""Names of modules: those that can find nothing in a trace are not imported for it, which takes time."""
_ORDER = ("critical", "warning", "info")


def all_findings(trace: Trace) -> list[Finding]:
    """Every finding: critical ones, warnings, then the rest; within one severity by time."""
    return [*trace.once(_find_all)]


def _find_all(trace: Trace) -> list[Finding]:
    evidence = Evidence(trace)
    timed: list[Timed] = []
    for kind in _possible(evidence):
        timed += import_module(f"{__name__}.{kind}").find(evidence)
    timed.sort(key=lambda pair: (_ORDER.index(pair[1].severity), pair[0]))
    return [finding for _, finding in timed]


def _possible(evidence: Evidence) -> list[str]:
    kinds = [*_OF_RECORDERS] if evidence.is_recorded else []
    kinds += [kind for kind in _OF_COMPILES if evidence.compile_events(kind)]
    kinds += _OF_EXPORTS if evidence.has_exports else ()
    return [*kinds, *_OF_RANKS] if len(evidence.runs) > 1 else kinds
