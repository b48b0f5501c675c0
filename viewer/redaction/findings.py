"""Redacts findings to their kind, position and numbers, in sentences that reveal nothing of the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Any

from stepscope.viewer.findings import redaction_of
from stepscope.viewer.findings import rules as rules_of_all_kinds
from stepscope.viewer.findings.ranks.rank_divergence import WHAT
from stepscope.viewer.overview.rows import ProofLink
from stepscope.viewer.redaction import proofs, rules
from stepscope.viewer.redaction.placeholders import Placeholders

_PLACES = ("rank", "step", "graph", "launch")


def redacted(placeholders: Placeholders, finding: Mapping[str, Any]) -> dict[str, Any]:
    """Return the redacted texts of a finding by field."""
    evidence = _evidence(placeholders, finding["evidence"])
    known = {
        "kind": placeholders.text(finding["kind"], rules.OWN),
        "severity": placeholders.text(finding["severity"], rules.OWN),
        "rule": finding["rule"] if finding["rule"] in _rules() else "",
        "evidence": evidence,
        "page": placeholders.address(finding["page"]),
        "kernel": placeholders.optional(finding["kernel"], rules.KERNEL),
        "buffer": placeholders.optional(finding["buffer"], rules.NAME),
        "argument": placeholders.optional(finding["argument"], rules.NAME),
    }
    return {
        **known,
        "title": _title(placeholders, finding, known),
        "proof": [said for line in finding["proof"] if (said := _proof(placeholders, line)) is not None],
        "links": [_link(placeholders, link) for link in finding["links"]],
    }


def _proof(placeholders: Placeholders, line: str) -> str | None:
    said = placeholders.sentence(line)
    if said is None:
        placeholders.remove("texts", line)
        return None
    return said if "values" in placeholders.kept else proofs.without_values(said)


def _link(placeholders: Placeholders, link: ProofLink | Mapping[str, str]) -> Any:
    if isinstance(link, ProofLink):
        return ProofLink(placeholders.sentence(link.text) or "open", placeholders.address(link.page))
    return asdict(_link(placeholders, ProofLink(**link)))


def _title(placeholders: Placeholders, finding: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    summary, is_measured = redaction_of(finding["kind"])
    if (is_measured or "texts" in placeholders.kept) and (said := placeholders.sentence(finding["title"])) is not None:
        return said
    shown = {name: str(known["evidence"].get(name) or "") for name in ("symptom", "compile_id", "aspect")}
    places = [f"compile {shown['compile_id']}"] if shown["compile_id"] else []
    places += [f"{name} {finding[name]}" for name in _PLACES if finding[name] is not None]
    places += [f"{name} {known[name]}" for name in ("kernel", "buffer") if known[name]]
    start = summary + (f" ({shown['symptom']})" if shown["symptom"] else "")
    start += f" in {WHAT[shown['aspect']]}" if shown["aspect"] in WHAT else ""
    return ": ".join(part for part in (start, ", ".join(places)) if part)


_rules = cache(rules_of_all_kinds)


def _evidence(placeholders: Placeholders, evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Keep only measurements and stepscope's own words."""
    kept = {name: _fact(placeholders, name, value) for name, value in evidence.items() if isinstance(name, str)}
    return {name: value for name, value in kept.items() if value is not None and value != []}


def _fact(placeholders: Placeholders, name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return _evidence(placeholders, value) if name in rules.EVIDENCE_TABLES else None
    if isinstance(value, list | tuple):
        facts = (_fact(placeholders, name, item) for item in value)
        return [fact for fact in facts if fact is not None and fact != {}]
    if not isinstance(value, str):
        is_hidden = name in rules.VALUES and "values" not in placeholders.kept
        return value if name in rules.EVIDENCE_NUMBERS and not is_hidden else None
    if name in rules.EVIDENCE_NAMES:
        return placeholders.text(value, rules.EVIDENCE_NAMES[name])
    if name in rules.EVIDENCE_SENTENCES:
        described = placeholders.described(value)
        if described is None:
            placeholders.remove("texts", value)
        return described
    proof = rules.EVIDENCE_TEXTS.get(name)
    if proof is not None and proof(value):
        placeholders.shown.add(value)
        return value
    kind = rules.EVIDENCE_KINDS.get(name, "texts")
    if kind in placeholders.kept:
        return placeholders.text(value, rules.Rule("text", kind=kind))
    placeholders.remove(kind, value)
    return None
