"""Template filters for the overview: the parts of a finding's card."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stepscope.viewer.ingest.damage import REASONS
from stepscope.viewer.overview.finding_groups import finding_groups
from stepscope.viewer.overview.rows import SEVERITY_SIGNS, SIDES, Finding
from stepscope.viewer.text import formats

FINDING_PAGES = {
    "graph_break": ("/graph-breaks", "all graph breaks"),
    "recompile": ("/recompiles", "all recompiles"),
    "recompile_limit": ("/recompiles", "all recompiles"),
    "recompiles_each_step": ("/recompiles", "all recompiles"),
    "break_in_hot_loop": ("/graph-breaks", "all graph breaks"),
    "synchronizing_call": ("/graph-breaks", "all graph breaks"),
    "cache_bypass": ("/caches?state=bypass", "all bypasses"),
    "draft_export": ("/draft-export", "report of draft export"),
    "rank_divergence": ("/ranks", "all ranks"),
}
"""Page with all findings of each kind, and the text of the link to it."""


@dataclass(frozen=True)
class EvidenceParts:
    """The evidence of a finding, by name."""

    facts: dict[str, Any]
    tables: dict[str, list[dict[str, Any]]]


def evidence_parts(finding: Finding) -> EvidenceParts:
    """Return the known evidence, sentences about inputs and outputs first."""
    known = {name: value for name, value in finding.evidence.items() if value is not None and value != []}
    ordered = {name: known[name] for name in (*SIDES, *known) if name in known}
    tables = {name: value for name, value in ordered.items() if is_rows(value)}
    return EvidenceParts({name: value for name, value in ordered.items() if name not in tables}, tables)


def is_rows(value: object) -> bool:
    """Return whether the evidence is a table."""
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


FILTERS = {
    "evidence": formats.evidence_text,
    "evidence_label": formats.evidence_label,
    "evidence_parts": evidence_parts,
    "finding_groups": finding_groups,
}
GLOBALS = {
    "finding_pages": FINDING_PAGES,
    "severity_signs": SEVERITY_SIGNS,
    "sides": SIDES,
    "damage_reasons": REASONS,
}
