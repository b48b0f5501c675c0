"""Template filters for the overview: the parts of a finding's card."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stepscope.viewer.ingest.damage import REASONS
from stepscope.viewer.overview.rows import SEVERITY_SIGNS, SIDES, Finding
from stepscope.viewer.text import formats

FINDING_PAGES = {
    "graph_break": ("/graph-breaks", "all graph breaks"),
    "recompile": ("/recompiles", "all recompiles"),
    "recompile_limit": ("/recompiles", "all recompiles"),
    "cache_bypass": ("/caches?state=bypass", "all bypasses"),
    "draft_export": ("/draft-export", "report of draft export"),
    "rank_divergence": ("/ranks", "all ranks"),
}
"""Page with all findings of each kind, and the text of the link to it."""
MOST_SENTENCES = 2
"""Number of sentences per side that are shown without a click."""
LONG_EVIDENCE = 96
"""Number of characters above which a fact of a finding is shown behind a click."""
FOLDED = {"rank_divergence"}
"""Kinds of findings whose title already states their facts."""


@dataclass(frozen=True)
class EvidenceParts:
    """The evidence that a finding's card shows directly, and the evidence that it shows behind a click."""

    sides: dict[str, list[str]]
    """Sentences about the inputs, the outputs and what a tool found, keyed by side."""
    shown: dict[str, Any]
    folded: dict[str, Any]
    tables: dict[str, list[dict[str, Any]]]


def evidence_parts(finding: Finding) -> EvidenceParts:
    known = {name: value for name, value in finding.evidence.items() if value is not None and value != []}
    sides = {name: known.pop(name) for name in SIDES if known.get(name)}
    known.pop("inside", None)
    parts = EvidenceParts(
        {name: [text] if isinstance(text, str) else [str(item) for item in text] for name, text in sides.items()},
        {}, {}, {},
    )  # fmt: skip
    for name, texts in parts.sides.items():
        if len(texts) > MOST_SENTENCES:
            parts.folded[name] = texts
    for name, value in known.items():
        if is_rows(value):
            parts.tables[name] = value
        elif sides or finding.kind in FOLDED or len(formats.evidence_text(value, name)) > LONG_EVIDENCE:
            parts.folded[name] = value
        else:
            parts.shown[name] = value
    return parts


def is_rows(value: object) -> bool:
    """Return whether the evidence is a table."""
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


FILTERS = {
    "evidence": formats.evidence_text,
    "evidence_label": formats.evidence_label,
    "evidence_parts": evidence_parts,
}
GLOBALS = {
    "finding_pages": FINDING_PAGES,
    "severity_signs": SEVERITY_SIGNS,
    "most_sentences": MOST_SENTENCES,
    "damage_reasons": REASONS,
}
