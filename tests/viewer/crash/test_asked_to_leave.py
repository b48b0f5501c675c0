"""A process that a signal asked to leave, as its launch ring tells, did not crash, unless a launch of it had hung."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from stepscope.tracer.schema.process_ends import UncaughtException
from stepscope.viewer.findings import all_findings
from tests.logs.synthetic import recorded
from tests.viewer.crash.test_crash import PID, START_NS, only, process_end, ring, ring_call, trace_of

__all__ = ["trace_of"]

BETWEEN = ring_call(30, 3, [(0, START_NS + 100, START_NS + 200)], ended=START_NS + 300)
WITHIN = ring_call(30, 3, [(0, START_NS + 100, START_NS + 200), (1, START_NS + 300, -1)])


def asked(block: list[int], number: int, after_ns: int = 1_000_000) -> bytes:
    data = bytearray(ring([block]))
    struct.pack_into("<2q", data, 9 * 8, number, START_NS + after_ns)
    return bytes(data)


@pytest.mark.parametrize(("number", "name"), [(15, "SIGTERM"), (1, "SIGHUP")])
def test_between_two_calls(trace_of: Any, number: int, name: str) -> None:
    trace = trace_of(recorded(end=False, pid=PID), asked(BETWEEN, number))
    finding = only(trace)
    assert finding.severity == "info"
    assert finding.title.startswith(f"Process {PID} was stopped by {name} after launch 16 of step 3, ")
    assert (finding.evidence["signal"], finding.evidence["symptom"]) == (name, None)


def test_ctrl_c_is_no_finding(trace_of: Any) -> None:
    trace = trace_of(recorded(end=False, pid=PID), asked(BETWEEN, 2))
    assert [one.kind for one in all_findings(trace)] == []


@pytest.mark.parametrize(("number", "severity"), [(0, "critical"), (9, "critical"), (-(2**63), "critical")])
def test_a_word_that_names_no_such_signal(trace_of: Any, number: int, severity: str) -> None:
    assert only(trace_of(recorded(end=False, pid=PID), asked(BETWEEN, number))).severity == severity


def test_within_a_launch(trace_of: Any) -> None:
    finding = only(trace_of(recorded(end=False, pid=PID), asked(WITHIN, 15)))
    assert (finding.severity, finding.evidence["launch_returned"]) == ("info", False)
    assert finding.title.startswith(f"Process {PID} was stopped by SIGTERM in launch 17 of step 3, ")


def test_a_launch_that_had_hung_is_told_as_without_the_signal(trace_of: Any) -> None:
    finding = only(trace_of(recorded(end=False, pid=PID), asked(WITHIN, 15, after_ns=60 * 10**9)))
    assert (finding.severity, finding.title) == (
        "critical",
        f"Process {PID} died in launch 17 of step 3, cpp_fused_relu_0",
    )


def test_who_waited_for_it_knows_better(trace_of: Any) -> None:
    log = recorded(end=False, pid=PID).record(process_end(signal=9))
    assert "was killed by SIGKILL" in only(trace_of(log, asked(BETWEEN, 15))).title


def test_an_exception_that_it_left_behind_is_what_it_died_of(trace_of: Any) -> None:
    log = recorded(end=False, pid=PID).record(UncaughtException("ValueError", "no", []))
    assert only(trace_of(log, asked(BETWEEN, 15))).evidence["symptom"] == "ValueError: no"
