"""The verdict: one module per kind of finding, each with its rule in its docstring."""

from __future__ import annotations

from collections.abc import Callable

from viewer.findings import (
    cache_bypass,
    changed_without_writer,
    compile_failure,
    crash,
    estimate_gap,
    exception,
    graph_break,
    growth,
    lifetime_mismatch,
    nonfinite,
    not_recorded,
    rank_divergence,
    recompile,
    recompile_limit,
    recompute_mismatch,
    storage_overlap,
    uninitialised_read,
)
from viewer.findings.evidence import Evidence, Timed
from viewer.queries.rows import Finding
from viewer.store.open import Trace

_FINDERS: dict[str, Callable[[Evidence], list[Timed]]] = {
    "nonfinite": nonfinite.find,
    "uninitialised_read": uninitialised_read.find,
    "storage_overlap": storage_overlap.find,
    "changed_without_writer": changed_without_writer.find,
    "lifetime_mismatch": lifetime_mismatch.find,
    "recompute_mismatch": recompute_mismatch.find,
    "estimate_gap": estimate_gap.find,
    "growth": growth.find,
    "crash": crash.find,
    "exception": exception.find,
    "recompile_limit": recompile_limit.find,
    "recompile": recompile.find,
    "graph_break": graph_break.find,
    "compile_failure": compile_failure.find,
    "cache_bypass": cache_bypass.find,
    "rank_divergence": rank_divergence.find,
    "not_recorded": not_recorded.find,
}
KINDS = tuple(_FINDERS)
_ORDER = ("critical", "warning", "info")


def all_findings(trace: Trace) -> list[Finding]:
    """Every finding: critical ones, warnings, then the rest; within one severity by time."""
    return [*trace.once(_find_all)]


def _find_all(trace: Trace) -> list[Finding]:
    evidence = Evidence(trace)
    timed = [pair for find in _FINDERS.values() for pair in find(evidence)]
    timed.sort(key=lambda pair: (_ORDER.index(pair[1].severity), pair[0]))
    return [finding for _, finding in timed]
