"""Writes the findings in SARIF 2.1.0, which code hosts show beside the lines of the source.

Paths are relative to the current folder, which is the checkout in CI. A finding without a line of source is placed at
the first line of the program, because code hosts refuse results without a place.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote

import orjson

from stepscope.tracer._version import __version__
from stepscope.viewer.exports.formats import Wanted, opened
from stepscope.viewer.findings import rule_of_kind
from stepscope.viewer.overview.queries.overview import overview
from stepscope.viewer.overview.rows import Finding, Overview, RunRow
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.clean import clean

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {"critical": "error", "warning": "warning", "info": "note"}
ROOT = "SRCROOT"
FINGERPRINT = "stepscopeFinding/v1"


def export(trace: Trace, wanted: Wanted) -> int:
    facts = overview(trace)
    with opened(wanted.path) as out:
        out.write(orjson.dumps(sarif(facts, Path.cwd()), option=orjson.OPT_INDENT_2))
    return len(facts.findings)


def sarif(facts: Overview, root: Path) -> dict[str, Any]:
    """Return the findings as a SARIF log, with the paths below `root` relative to it."""
    kinds = sorted({finding.kind for finding in facts.findings})
    seen: Counter[str] = Counter()
    results = [_result(facts, finding, kinds, root, seen) for finding in facts.findings]
    driver = {"name": "stepscope", "semanticVersion": __version__, "rules": [_rule(kind) for kind in kinds]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {ROOT: {"uri": f"{root.as_uri()}/"}},
        "results": results,
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(kind: str) -> dict[str, Any]:
    text = rule_of_kind(kind)
    return {
        "id": kind,
        "name": "".join(word.capitalize() for word in kind.split("_")),
        "shortDescription": {"text": text.partition(". ")[0].rstrip(".") + "."},
        "fullDescription": {"text": text},
    }


def _result(facts: Overview, finding: Finding, kinds: list[str], root: Path, seen: Counter[str]) -> dict[str, Any]:
    location, print_of_place = _location(facts, finding, root)
    same = _fingerprint(finding.kind, *print_of_place)
    seen[same] += 1
    known = {
        "rank": finding.rank, "step": finding.step, "graph": finding.graph, "launch": finding.launch,
        "kernel": finding.kernel, "buffer": finding.buffer, "argument": finding.argument, "page": finding.page,
    }  # fmt: skip
    return {
        "ruleId": finding.kind,
        "ruleIndex": kinds.index(finding.kind),
        "level": LEVELS[finding.severity],
        "message": {"text": clean(finding.title)},
        "locations": [location],
        "partialFingerprints": {FINGERPRINT: f"{same}:{seen[same]}"},
        "properties": {name: value for name, value in known.items() if value is not None},
    }


def _location(facts: Overview, finding: Finding, root: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the place of a finding, and the texts by which it is recognised when lines have moved."""
    source = finding.source
    file = source.file if source else _program(facts.runs, finding.log)
    artifact = _artifact(file, root)
    region: dict[str, Any] = {"startLine": max(source.line, 1) if source else 1}
    code = source.code.strip() if source else ""
    if code:
        region["snippet"] = {"text": clean(code)}
    place: dict[str, Any] = {"physicalLocation": {"artifactLocation": artifact, "region": region}}
    if source and source.function:
        place["logicalLocations"] = [{"name": clean(source.function), "kind": "function"}]
    named = (code, source.function) if source else (finding.kernel or "", finding.buffer or "")
    return place, (artifact["uri"], *named)


def _program(runs: list[RunRow], log: int | None) -> str:
    """Return the script of the run that a finding is about, or the name of its log if it names no script."""
    run = next((run for run in runs if run.log == log), runs[0] if runs else None)
    if run is None:
        return "trace"
    return next((word for word in run.argv if word.endswith(".py")), PurePath(run.path).name)


def _artifact(file: str, root: Path) -> dict[str, Any]:
    path = PurePath(file)
    if not path.is_absolute():
        return {"uri": quote(path.as_posix()), "uriBaseId": ROOT}
    if path.is_relative_to(root):
        return {"uri": quote(path.relative_to(root).as_posix()), "uriBaseId": ROOT}
    return {"uri": path.as_uri()}


def _fingerprint(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]
