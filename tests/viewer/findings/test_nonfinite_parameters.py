"""Findings about parameters that became NaN or infinite, and other findings that tell their cause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stepscope.tracer.schema.parameters import LearningRate, NonfiniteParameters
from stepscope.tracer.schema.process_ends import End
from stepscope.viewer.findings import all_findings, kinds_of
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import LogBuilder, run

Open = Callable[[LogBuilder | bytes], Trace]
AT = "/src/train.py", 30
HEAD: list[str | None] = ["net.head.weight", "net.head.bias"]
BAD = NonfiniteParameters("AdamW", 8, 4, False, 16, 12, True, HEAD, [], 3, 7, *AT, infinite_before=0)


def found(opened: Open, *records: Any) -> list[Finding]:
    builder = LogBuilder().record(run())
    for record in records:
        builder.record(record)
    return all_findings(opened(builder.record(End("exit", 1))))


def test_a_learning_rate_far_above_the_others_is_told(opened: Open) -> None:
    record = replace(BAD, groups=11, largest_rate=20.0, median_rate=0.02, largest_rate_names=HEAD)
    (finding,) = found(opened, record)
    assert (
        "The parameter group of net.head.weight and net.head.bias has a learning rate of 20, while the median of the"
        " 11 groups of AdamW is 0.02."
    ) in finding.proof


@pytest.mark.parametrize(
    ("changes", "title", "severity"),
    [
        (
            {},
            "net.head.weight and 11 other parameters hold NaN after 8 recorded steps of AdamW (train.py:30);"
            " all were finite"
            " after 4 recorded steps",
            "critical",
        ),
        (
            {"steps": 1, "finite_steps": 0, "nonfinite": 2, "is_nan": False},
            "net.head.weight and 1 other parameter hold infinities after the first recorded step of AdamW"
            " (train.py:30); all"
            " were finite before the first recorded step",
            "info",
        ),
        (
            {"is_last": True, "nonfinite": 1, "names": [None]},
            "A parameter that no module has holds NaN at the end of the recording; it was finite after 4 recorded"
            " steps of AdamW"
            " (train.py:30)",
            "critical",
        ),
        (
            {"nan_before": ["net.tail.weight"], "file": None, "line": None},
            "net.head.weight and 11 other parameters hold NaN after 8 recorded steps of AdamW; they were finite"
            " after 4 recorded steps",
            "critical",
        ),
        (
            {"infinite_before": 1},
            "net.head.weight and 11 other parameters hold NaN after 8 recorded steps of AdamW (train.py:30);"
            " they held no NaN"
            " after 4 recorded steps",
            "critical",
        ),
        (
            {"infinite_before": None, "nonfinite": 1, "is_last": True},
            "net.head.weight holds NaN at the end of the recording; it held no NaN after 4 recorded steps of AdamW"
            " (train.py:30)",
            "critical",
        ),
        (
            {"infinite_before": 1, "is_nan": False},
            "net.head.weight and 11 other parameters hold infinities after 8 recorded steps of AdamW"
            " (train.py:30); they were"
            " finite after 4 recorded steps",
            "info",
        ),
    ],
)
def test_the_title(opened: Open, changes: dict[str, Any], title: str, severity: str) -> None:
    (finding,) = found(opened, replace(BAD, **changes))
    assert (finding.kind, finding.title, finding.severity) == ("nonfinite_parameters", title, severity)
    assert kinds_of(finding) == {"nonfinite_parameters", "nonfinite"}


def test_the_proof(opened: Open) -> None:
    (finding,) = found(opened, replace(BAD, nan_before=["net.tail.weight"]))
    assert finding.proof == [
        "AdamW has 16 parameters, of which 12 are NaN or infinite: net.head.weight, net.head.bias and 10 more.",
        "net.tail.weight held NaN already before, which may have spread.",
        "To find the first launch that makes NaN, record with --level values --steps 3:8.",
    ]
    assert finding.source is not None
    assert finding.source.line == 30


def test_infinities_that_were_there_before(opened: Open) -> None:
    (finding,) = found(opened, replace(BAD, infinite_before=2))
    assert finding.proof[1] == "Of the parameters, 2 held infinities already before."


def test_infinities_may_be_meant(opened: Open) -> None:
    (finding,) = found(opened, replace(BAD, is_nan=False))
    assert finding.proof[-1] == (
        "To find what makes an infinity, a launch, or the program itself, for example as a mask, record with"
        " --level values --steps 3:8."
    )


def test_an_optimizer_is_told_once(opened: Open) -> None:
    assert len(found(opened, BAD, replace(BAD, steps=16), replace(BAD, name="SGD"))) == 2


@pytest.mark.parametrize(("name", "kinds"), [("AdamW", {"rounded_eps"}), ("SGD", {"rounded_eps", BAD.KIND})])
def test_an_eps_of_zero_is_the_cause(opened: Open, name: str, kinds: set[str]) -> None:
    findings = found(opened, LearningRate(name, 0.1, None, *AT, 1e-8), replace(BAD, nonfinite_float16=12))
    assert {one.kind for one in findings} == kinds
    (eps,) = [one for one in findings if one.kind == "rounded_eps"]
    assert (eps.severity == "critical") == (name == "AdamW")
    assert ("net.head.weight and 11 other parameters hold NaN after 8 recorded steps." in eps.proof) == (
        name == "AdamW"
    )


@pytest.mark.parametrize("in_float16", [0, 11, None])
def test_an_eps_of_zero_is_not_the_cause(opened: Open, in_float16: int | None) -> None:
    findings = found(opened, LearningRate("AdamW", 0.1, None, *AT, 1e-8), replace(BAD, nonfinite_float16=in_float16))
    assert {one.kind: one.severity for one in findings} == {"rounded_eps": "warning", BAD.KIND: "critical"}


def test_infinities_by_an_eps_of_zero_are_a_warning(opened: Open) -> None:
    bad = replace(BAD, nonfinite_float16=12, is_nan=False)
    (finding,) = found(opened, LearningRate("AdamW", 0.1, None, *AT, 1e-8), bad)
    assert (finding.kind, finding.severity) == ("rounded_eps", "warning")
    assert "net.head.weight and 11 other parameters hold infinities after 8 recorded steps." in finding.proof


def test_an_eps_of_zero_is_the_cause_for_one_of_two_optimizers(opened: Open) -> None:
    both = replace(BAD, nonfinite_float16=12), replace(BAD, nonfinite_float16=0, steps=16)
    findings = found(opened, LearningRate("AdamW", 0.1, None, *AT, 1e-8), *both)
    assert {one.kind for one in findings} == {"rounded_eps", BAD.KIND}
