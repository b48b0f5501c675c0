"""Findings of checks in generated code: how often, after which launch, and of which memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from stepscope.viewer.findings import all_findings
from stepscope.viewer.store.trace import Trace
from tests.logs.memory_logs import training
from tests.logs.memory_records import mismatch, step_mismatch
from tests.logs.synthetic import LogBuilder

Open = Callable[[LogBuilder | bytes], Trace]


def test_what_a_check_found_again_counts(opened: Open) -> None:
    """Records of what was found again have no holders; the site is the launch before the check."""
    again = step_mismatch(site=1, times=[2], storage=["buf0"], holders=[[]])
    log = training(2).record(replace(again, times=[1], holders=[["list of 1 in keep"]])).record(again)
    trace = opened(log)
    (finding,) = all_findings(trace)
    assert finding.title == (
        "buf0 (512 B) of graph 0/0 forward was not freed (3 times): the check at cab.py:77 after cpp_fused_relu_0 "
        "expects it to be freed; it is held by a list of 1 in keep"
    )
    assert (finding.kernel, finding.evidence["calls"], finding.evidence["checks"]) == ("cpp_fused_relu_0", 3, 1)


def test_a_check_names_the_memory_by_a_later_name(opened: Open) -> None:
    check = step_mismatch(buffer="buf5", storage=["buf0"], times=[3])
    (finding,) = all_findings(opened(training(2).record(mismatch()).record(check)))
    assert finding.buffer == "buf0"
    assert "was not freed (3 times)" in finding.title
    assert finding.evidence["checked_at"] == ["/cache/ab/cab.py:77"]


def test_a_holder_that_was_not_found(opened: Open) -> None:
    check = step_mismatch(holders=[["not found: autograd, C++ or a running function holds it"]])
    (finding,) = all_findings(opened(training(2).record(check)))
    assert finding.title.endswith("; its holder was not found: autograd, C++ or a running function holds it")
