"""Functions that Python runs because of a graph break within them: the break tells the time in which they run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stepscope.tracer.schema.launches import Calls, Launches
from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.steps import StepMarks
from stepscope.viewer.findings import all_findings
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import MONOTONIC_NS, UNIX_NS, LogBuilder, compile_records, graph, run
from tests.viewer.speed.test_gaps import looped

Open = Callable[[LogBuilder | bytes], Trace]
MS = 1_000_000
KINDS = {"graph_break", "break_in_hot_loop", "synchronizing_call", "uncompiled_work"}
REASON = (
    b"Failed to handle graph break gracefully. Skipping the function and falling back to eager. "
    b"Graph break encountered:\n\nUnsupported call\n  Explanation: x\n\nUser code traceback:\n"
    b'  File "/src/model.py", line 5, in search\n    find(x)\n'
)


def training(before: int, between: int, given_up_at: int) -> LogBuilder:
    """Ten steps of two calls of 4 ms, after other code (ms), and a compile of a function that was given up at a time
    (ms) after the beginning of the first step."""
    log = LogBuilder().record(run(guesses_steps=True))
    log.record(graph()).record(graph(1, compile_id="1/0"))
    end = MONOTONIC_NS
    for step in range(10):
        first = end + before * MS
        second = first + (4 + between) * MS
        end = second + 4 * MS
        calls = Calls(
            [2 * step, 2 * step + 1], [0, 1], [0, 0], [step, step], [1, 1], [None, None], [first, second],
            [4 * MS, 4 * MS], [1, 1], ["ok", "ok"],
        )  # fmt: skip
        log.record(Launches(calls, [0, 0], [first, second], [first + MS, second + MS]))
        log.record(StepMarks(["optimizer"], [0], ["AdamW"], [1], [end]))
    log.record(End("exit", end))
    return given_up(compile_records(compile_records(log, 0, 0), 1, 0), given_up_at)


def given_up(log: LogBuilder, at_ms: int) -> LogBuilder:
    log.artifact("dynamo_graph_break_reason", REASON, "string", frame_id=3, frame_compile_id=0, attempt=0)
    metrics = {
        "fail_type": "Unsupported", "fail_reason": "no\n  Explanation: none", "has_guarded_code": False,
        "co_name": "search", "co_filename": "/src/model.py", "co_firstlineno": 3,
        "start_time_us": (UNIX_NS + at_ms * MS) // 1000, "duration_us": 10,
    }  # fmt: skip
    return log.torch("compilation_metrics", metrics, frame_id=3, frame_compile_id=0, attempt=0)


def found(trace: Trace) -> Finding:
    (finding,) = (one for one in all_findings(trace) if one.kind in KINDS)
    return finding


@pytest.mark.parametrize(("before", "between", "given_up_at"), [(12, 0, 1), (0, 12, 5)], ids=["first", "between"])
def test_a_costly_function_is_one_finding(opened: Open, before: int, between: int, given_up_at: int) -> None:
    """Also where no graph was called yet when its compile was given up."""
    finding = found(opened(training(before, between, given_up_at)))
    assert (finding.kind, finding.evidence["share"]) == ("break_in_hot_loop", 0.6)
    assert finding.title.startswith(
        "Code that is not compiled takes 60 % of a step (12.0 ms of 20.0 ms), because the graph break in"
        " model.py:5 makes Python run all of search (model.py:3)"
    )


def test_a_function_that_python_runs_is_the_probable_cause_between_backward_passes(opened: Open) -> None:
    findings = all_findings(opened(given_up(looped(4, 6), 1)))
    (finding,) = [one for one in findings if one.kind == "uncompiled_work"]
    assert finding.title.endswith(
        ", probably in the backward pass of search (model.py:3), which runs uncompiled because of a graph break"
    )
    assert finding.proof[0] == "Python runs all of search (model.py:3) because of the graph break at model.py:5."


@pytest.mark.parametrize(("before", "between", "given_up_at"), [(1, 0, 0), (0, 1, 5)], ids=["first", "between"])
def test_a_function_that_takes_little_tells_its_share(
    opened: Open, before: int, between: int, given_up_at: int
) -> None:
    finding = found(opened(training(before, between, given_up_at)))
    assert (finding.kind, finding.severity, finding.evidence["share"]) == ("graph_break", "info", 0.1111)
    said = (
        "The time between calls of compiled graphs, in which Python runs the function, is 11 % of a step (1.00 ms of"
        " 9.00 ms)."
    )
    assert finding.proof == [said]
