"""Findings in SARIF: the structure of the standard, places relative to the checkout, and lasting fingerprints."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from stepscope.viewer.exports.sarif import FINGERPRINT, LEVELS, sarif
from stepscope.viewer.exports.write import export
from stepscope.viewer.findings import rule_of_kind
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.overview.queries.overview import overview
from stepscope.viewer.overview.rows import Overview
from stepscope.viewer.store.trace import Trace
from tests.logs import overflow_log
from tests.logs.synthetic import LogBuilder, recorded

pytestmark = pytest.mark.slow


Open = Callable[[LogBuilder | bytes], Trace]


def record(required: str = "", **properties: Any) -> dict[str, Any]:
    """An object of the standard, which has no other properties than these."""
    return {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }


TEXT = {"type": "string", "minLength": 1}
MESSAGE = record("text", text=TEXT)
PLACE = record(
    "artifactLocation region",
    artifactLocation=record(
        "uri", uri={"type": "string", "format": "uri-reference", "pattern": r"^[^\s\\]+$"}, uriBaseId=TEXT
    ),
    region=record("startLine", startLine={"type": "integer", "minimum": 1}, snippet=record("text", text=TEXT)),
)
RULE = record("id", id=TEXT, name=TEXT, shortDescription=MESSAGE, fullDescription=MESSAGE)
RESULT = record(
    "ruleId ruleIndex level message locations partialFingerprints",
    ruleId=TEXT,
    ruleIndex={"type": "integer", "minimum": 0},
    level={"enum": ["none", "note", "warning", "error"]},
    message=MESSAGE,
    locations={
        "type": "array",
        "minItems": 1,
        "items": record(
            "physicalLocation",
            physicalLocation=PLACE,
            logicalLocations={"type": "array", "items": record("name", name=TEXT, kind=TEXT)},
        ),
    },
    partialFingerprints={"type": "object", "additionalProperties": TEXT},
    properties={"type": "object"},
)
RUN = record(
    "tool results",
    tool=record(
        "driver", driver=record("name", name=TEXT, semanticVersion=TEXT, rules={"type": "array", "items": RULE})
    ),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    originalUriBaseIds={
        "type": "object",
        "additionalProperties": record("uri", uri={"type": "string", "pattern": r"^file:///.*/$"}),
    },
    results={"type": "array", "items": RESULT},
)
LOG = record("version runs", version={"const": "2.1.0"}, runs={"type": "array", "items": RUN}, **{"$schema": TEXT})
"""The part of the standard that is written."""


def checked(log: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the results of a log that has the structure of the standard."""
    jsonschema.Draft202012Validator(LOG).validate(log)
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in run["results"])
    for result in run["results"]:
        artifact = result["locations"][0]["physicalLocation"]["artifactLocation"]
        assert artifact.get("uriBaseId") in (None, *run["originalUriBaseIds"])
        assert ("uriBaseId" in artifact) != artifact["uri"].startswith("file:///")
    results: list[dict[str, Any]] = run["results"]
    return results


def prints(results: list[dict[str, Any]]) -> list[str]:
    return [result["partialFingerprints"][FINGERPRINT] for result in results]


@pytest.fixture
def facts(opened: Open) -> Overview:
    return overview(opened(overflow_log.recorded()))


def test_the_file_has_the_structure_of_the_standard(opened: Open, tmp_path: Path) -> None:
    trace = opened(overflow_log.recorded())
    path, count = export(trace, "sarif", "", tmp_path / "findings.sarif")
    results = checked(json.loads(path.read_bytes()))
    found = overview(trace).findings
    assert count == len(results) == len(found) > 0
    assert [result["level"] for result in results] == [LEVELS[finding.severity] for finding in found]
    assert [result["ruleId"] for result in results] == [finding.kind for finding in found]
    assert results[0]["message"]["text"] == found[0].title


def test_the_rule_is_the_one_that_users_see(facts: Overview) -> None:
    (run,) = sarif(facts, Path("/src"))["runs"]
    for rule in run["tool"]["driver"]["rules"]:
        assert rule["fullDescription"]["text"] == rule_of_kind(rule["id"])


@pytest.mark.parametrize(
    ("file", "uri"),
    [
        ("/src/a model/näme.py", "a%20model/n%C3%A4me.py"),
        ("/elsewhere/x.py", "file:///elsewhere/x.py"),
        ("x.py", "x.py"),
    ],
)
def test_paths_in_the_checkout_are_relative(facts: Overview, file: str, uri: str) -> None:
    finding = replace(facts.findings[0], source=SourceLine(file, 12, "forward", "y = x.half()"))
    (result,) = checked(sarif(replace(facts, findings=[finding]), Path("/src")))
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == uri
    assert place["region"] == {"startLine": 12, "snippet": {"text": "y = x.half()"}}


def test_a_finding_without_a_line_is_at_the_program(facts: Overview) -> None:
    finding = replace(facts.findings[0], source=None)
    run = replace(facts.runs[0], argv=["python", "/src/train.py", "--lr", "1"])
    (result,) = checked(sarif(replace(facts, findings=[finding], runs=[run]), Path("/src")))
    place = result["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]) == ("train.py", {"startLine": 1})


def test_fingerprints_last_and_differ(facts: Overview) -> None:
    source = SourceLine("/src/model.py", 12, "forward", "y = x.half()")
    first = replace(facts.findings[0], source=source)
    moved = replace(first, source=replace(source, line=40), launch=99, title="another number")
    other = replace(first, source=replace(source, code="y = x"))
    before = prints(checked(sarif(replace(facts, findings=[first, other, first]), Path("/src"))))
    after = prints(checked(sarif(replace(facts, findings=[moved, other, moved]), Path("/src"))))
    assert before == after
    assert len({*before}) == 3


def test_no_findings_are_an_empty_list(opened: Open) -> None:
    assert checked(sarif(overview(opened(recorded())), Path("/src"))) == []
