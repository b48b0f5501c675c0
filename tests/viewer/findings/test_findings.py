"""The verdict: each kind of finding on a log that has it, none on a healthy one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from stepscope.tracer.schema.gaps import Failure, Skipped
from stepscope.tracer.schema.launches import Calls
from stepscope.tracer.schema.process_ends import End, ProcessEnd, UncaughtException
from stepscope.tracer.schema.steps import OptimizerStep, StepMarks
from stepscope.viewer.compiles.queries.compiles import list_compiles
from stepscope.viewer.findings import KINDS, all_findings, kinds_of
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, calls, compile_records, recorded, run
from tests.viewer.crash.test_crash import PID, ring, ring_call

Open = Callable[[LogBuilder | bytes], Trace]
GRAPH_BREAK = b"""Graph break in user code at /src/model.py:5
Graph Break Reason: Encountered graph break when attempting to trace CALL: a function call, e.g. f(x, y):

Failed to trace builtin operator
  Explanation: Dynamo does not know how to trace builtin operator `print`
  Hint: Avoid calling `print`.

  Developer debug context: builtin print

User code traceback:
  File "/src/train.py", line 8, in <module>
    f(x).backward()
  File "/src/model.py", line 5, in f
    print("hello")

Traceback (most recent call last):
  File "/torch/_dynamo/symbolic_convert.py", line 1076, in wrapper
    return inner_fn(self, inst)
"""


def ids(frame: int, number: int, attempt: int = 0) -> dict[str, Any]:
    return {"frame_id": frame, "frame_compile_id": number, "attempt": attempt}


def only(trace: Trace) -> Finding:
    (finding,) = all_findings(trace)
    assert finding.kind in KINDS
    assert finding.evidence
    assert finding.rule.endswith(".")
    orjson.dumps(finding)
    return finding


@pytest.mark.slow
def test_healthy_runs_have_no_finding(opened: Open) -> None:
    assert all_findings(opened(recorded())) == []
    assert all_findings(opened(compile_records(LogBuilder()))) == []
    warm = recorded().data.replace(b"fx_graph_cache_miss", b"fx_graph_cache_hit")
    assert all_findings(opened(warm)) == []


def test_recompiles_of_a_frame_are_one_finding(opened: Open) -> None:
    log = compile_records(LogBuilder())
    for number, value in ((1, "a"), (2, "b")):
        reason = f"0/{number - 1}: n == '{value}'          # return x * n  # model.py:24 in k\nUser stack trace:\n"
        stack = '  File "/src/model.py", line 24, in k\n    return x * n'
        payload = orjson.dumps([reason + stack, "0/0: other"]) if number == 2 else (reason + stack).encode()
        log.artifact("recompile_reasons", payload, **ids(0, number))
        compile_records(log, 0, number)
    trace = opened(log)
    finding = only(trace)
    assert (finding.kind, finding.severity) == ("recompile", "info")
    assert finding.title == "forward (model.py:10) was recompiled 2 times: n changed from 'a' to 'b'"
    assert finding.evidence == {
        "recompiles": 2, "compile_ids": ["0/1", "0/2"], "reasons": ["n == 'a'", "n == 'b'"], "values": ["'a'", "'b'"],
        "in_steps": [],
    }  # fmt: skip
    assert finding.page == "/recompiles?log=0&frame=0"
    assert finding.source is not None
    assert (finding.source.file, finding.source.line, finding.source.code) == ("/src/model.py", 24, "return x * n")
    assert [row.recompile_reason for row in list_compiles(trace)] == [None, "0/0: n == 'a'", "0/1: n == 'b'"]


def test_a_recompile_does_not_ask_for_an_issue_as_pytorch_does(opened: Open) -> None:
    log = compile_records(LogBuilder())
    said = "Unexpected recompilation: runtime guards failed even though they passed during the analysis."
    reason = f"0/0: {said} Please open an issue with a minimal repro: https://github.com/pytorch/pytorch"
    log.artifact("recompile_reasons", reason.encode(), **ids(0, 1))
    compile_records(log, 0, 1)
    finding = only(opened(log))
    assert finding.title == f"forward (model.py:10) was recompiled: {said[:-1]}"
    assert finding.evidence["reasons"] == [said[:-1]]


def test_recompile_limit(opened: Open) -> None:
    log = compile_records(LogBuilder())
    reason = "Dynamo recompile limit exceeded\n  Explanation: exceeding the recompile_limit (currently set to 8)."
    metrics = {"fail_type": "Unsupported", "fail_reason": reason, "co_name": None, "duration_us": 10}
    log.torch("compilation_metrics", metrics, None, **ids(0, 1))
    trace = opened(log)
    finding = only(trace)
    assert (finding.kind, finding.severity) == ("recompile_limit", "warning")
    assert (
        finding.title
        == "forward (model.py:10) reached the recompile limit (8) in compile 0/1, and has run uncompiled since then"
    )
    assert finding.evidence["limit"] == 8
    assert {row.compile_id: row.status for row in list_compiles(trace)} == {"0/0": "ok", "0/1": "fallback"}


@pytest.mark.parametrize(("dynamic", "told"), [("true", "mark_dynamic"), ("false", "compiled with dynamic=False")])
def test_sizes_that_are_not_made_dynamic(opened: Open, dynamic: str, told: str) -> None:
    settings = f'{{"x": 1, "automatic_dynamic_shapes": {dynamic}}}'
    log = compile_records(LogBuilder(), dynamo_config=settings)
    for number, size in ((1, 5), (2, 7), (3, 9)):
        reason = f"0/{number - 1}: tensor 'x' size mismatch at index 1. expected {size - 2}, actual {size}"
        log.artifact("recompile_reasons", reason.encode(), **ids(0, number))
        compile_records(log, 0, number, dynamo_config=settings)
    assert any(told in line for line in only(opened(log)).proof)


def test_graph_breaks_are_grouped_by_cause(opened: Open) -> None:
    log = LogBuilder()
    for number in range(2):
        log.artifact("dynamo_graph_break_reason", GRAPH_BREAK, "string", **ids(0, number))
        compile_records(log, 0, number)
    trace = opened(log)
    finding = only(trace)
    assert (finding.kind, finding.severity) == ("graph_break", "info")
    assert finding.title == "Graph break in forward (model.py:10) (2 times): Failed to trace builtin operator"
    assert finding.evidence["breaks"] == 2
    assert "Hint: Avoid calling" in finding.evidence["explanation"]
    assert "debug context" not in finding.evidence["explanation"]
    assert finding.source is not None
    assert (finding.source.line, finding.source.function, finding.source.code) == (5, "f", 'print("hello")')


def failed_at_a_break(number: int, *reasons: bytes) -> LogBuilder:
    log = LogBuilder()
    for attempt, reason in enumerate(reasons):
        log.artifact("dynamo_graph_break_reason", reason, "string", **ids(0, number, attempt))
    log.artifact("dynamo_error", b"Traceback\ntorch._dynamo.exc.Unsupported: no RNN", "string", **ids(0, number, 1))
    failed = {"fail_type": "Unsupported", "fail_reason": "no RNN\n  Explanation: none", "has_guarded_code": False}
    return compile_records(log, 0, number, has_code=False, **failed)


SKIPPED = (
    b"Failed to handle graph break gracefully. Skipping the function and falling back to eager. "
    b"Graph break encountered:\n\nFailed to trace builtin operator\n  Explanation: x\n\nUser code traceback:\n"
    b'  File "/src/model.py", line 5, in f\n    print("hello")\n'
)
WHOLE = "Graph break in forward (model.py:10): Failed to trace builtin operator; the whole function ran in Python"


def test_a_function_that_dynamo_skips_at_a_graph_break_is_no_failed_compile(opened: Open) -> None:
    trace = opened(failed_at_a_break(0, GRAPH_BREAK, SKIPPED))
    finding = only(trace)
    assert (finding.kind, finding.severity, finding.evidence["breaks"]) == ("graph_break", "warning", 1)
    assert finding.title == f"{WHOLE}, and nothing was compiled in this run"
    (row,) = list_compiles(trace)
    assert (row.status, row.failure) == ("fallback", None)


def test_steps_that_call_no_graph_tell_what_is_not_compiled(opened: Open) -> None:
    """The function between two breaks was compiled, but to nothing."""
    broken = failed_at_a_break(0, GRAPH_BREAK, SKIPPED).record(run(guesses_steps=True))
    log = compile_records(broken, 1, 0, has_code=False, graph_op_count=0)
    for step in range(6):
        end = MONOTONIC_NS + 10_000_000 * (step + 1)
        log.record(OptimizerStep(1, end - 2_000_000, 2_000_000, "SGD"))
        log.record(StepMarks(["optimizer"], [0], ["SGD"], [1], [end]))
    finding = only(opened(log.record(End("exit", end))))
    assert (finding.severity, finding.title) == ("warning", f"{WHOLE}, and nothing was compiled in this run")
    assert finding.proof == ["Work of the program that is not compiled takes 80 % of a step (8.00 ms of 10.0 ms)."]


def test_a_function_that_dynamo_skips_beside_one_that_it_compiles_is_information(opened: Open) -> None:
    finding = only(opened(compile_records(failed_at_a_break(0, GRAPH_BREAK, SKIPPED), 1, 0)))
    assert (finding.severity, finding.title) == ("info", WHOLE)


def test_what_dynamo_does_not_skip_is_a_failed_compile(opened: Open) -> None:
    """With ``fullgraph=True`` the program gets the error, and the log names no graph break."""
    finding = only(opened(failed_at_a_break(0)))
    assert (finding.kind, finding.severity) == ("compile_failure", "warning")


def test_restart_reasons_of_older_versions_are_graph_breaks(opened: Open) -> None:
    log = compile_records(LogBuilder(), restart_reasons=["'skip function graph_break in file x.py'"])
    finding = only(opened(log))
    assert finding.title == "Graph break in forward (model.py:10): skip function graph_break in file x.py"


@pytest.mark.parametrize("log", [LogBuilder(), recorded()])
def test_other_reasons_to_restart_are_no_graph_breaks(opened: Open, log: LogBuilder) -> None:
    reason = "<class 'torch._dynamo.exc.TensorifyScalarRestartAnalysis'>"
    assert all_findings(opened(compile_records(log, 7, 0, restart_reasons=[reason]))) == []


def test_a_failed_compile_is_a_warning(opened: Open) -> None:
    log = compile_records(
        LogBuilder(),
        fail_type="BackendCompilerFailed",
        fail_reason="backend='b' raised:\nRuntimeError: broken",
        fail_user_frame_filename="/src/model.py",
        fail_user_frame_lineno=13,
    )
    trace = opened(log)
    finding = only(trace)
    assert (finding.kind, finding.severity) == ("compile_failure", "warning")
    cause = "BackendCompilerFailed: backend='b' raised: RuntimeError: broken"
    assert finding.title == f"Compiling forward (model.py:10) failed: {cause}"
    assert finding.source is not None
    assert finding.source.line == 13
    assert [row.status for row in list_compiles(trace)] == ["failed"]


def test_a_suppressed_failure_falls_back(opened: Open) -> None:
    trace = opened(compile_records(LogBuilder(), fail_type="X", fail_reason="y", config_suppress_errors=True))
    assert [row.status for row in list_compiles(trace)] == ["fallback"]
    assert only(trace).kind == "compile_failure"


def test_a_failed_compile_at_the_end_of_a_dead_log_is_critical(opened: Open) -> None:
    log = compile_records(recorded(end=False), 3, 0, fail_type="X", fail_reason="y", start_time_us=10**15 * 2)
    assert [(f.kind, f.severity) for f in all_findings(opened(log))] == [
        ("crash", "critical"),
        ("compile_failure", "critical"),
    ]


BROKEN = "backend='b' raised:\nRuntimeError: broken"


@pytest.mark.parametrize(
    ("raised", "severity"), [(None, "info"), ("something else went wrong", "info"), (BROKEN, "critical")]
)
@pytest.mark.parametrize("limit", [False, True])
def test_a_failed_compile_that_the_program_caught(opened: Open, raised: str | None, severity: str, limit: bool) -> None:
    """As in a test that expects it: the program went on, and ended well or by another error."""
    kind = "FailOnRecompileLimitHit" if limit else "BackendCompilerFailed"
    log = compile_records(recorded(end=False), 3, 0, fail_type=kind, fail_reason=BROKEN, start_time_us=10**15 * 2)
    if raised is not None:
        log.record(UncaughtException("RuntimeError", raised, []))
    findings = all_findings(opened(log.record(End("exit", 0))))
    (finding,) = [one for one in findings if one.kind != "exception"]
    assert (finding.kind, finding.severity) == ("recompile_limit" if limit else "compile_failure", severity)
    if not limit:
        assert finding.title.endswith("; the program went on") is (severity == "info")


@pytest.mark.parametrize(("failures", "severity"), [(2, "info"), (3, "warning")])
def test_compiles_that_fail_in_each_call(opened: Open, failures: int, severity: str) -> None:
    log = recorded(end=False)
    for number in range(failures):
        start_us = 10**15 * 2 + number
        log = compile_records(
            log, 3, number, fail_type="BackendCompilerFailed", fail_reason=BROKEN, start_time_us=start_us
        )
    (finding,) = all_findings(opened(log.record(End("exit", 0))))
    assert (finding.kind, finding.severity, finding.evidence["failures"]) == ("compile_failure", severity, failures)
    assert any("in vain" in line for line in finding.proof) is (severity == "warning")


def test_a_failed_compile_with_another_behind_it(opened: Open) -> None:
    """PyTorch alone wrote the log: nothing says how the program ended."""
    log = compile_records(LogBuilder(), 0, 0, fail_type="BackendCompilerFailed", fail_reason=BROKEN)
    finding = only(opened(compile_records(log, 1, 0, start_time_us=10**15 * 2)))
    assert (finding.kind, finding.severity) == ("compile_failure", "info")


def test_cache_bypass(opened: Open) -> None:
    payload = orjson.dumps({"cache_bypass_reason": "Unsupported call_function target <function x at 0x7f3a>"})
    log = compile_records(LogBuilder()).artifact("fx_graph_cache_bypass", payload, **ids(0, 0))
    log.artifact("aotautograd_cache_bypass", payload, **ids(0, 0))
    finding = only(opened(log))
    assert (finding.kind, finding.severity) == ("cache_bypass", "info")
    assert finding.evidence["reasons"] == ["Unsupported call_function target <function x>"]


def test_what_was_not_recorded(opened: Open) -> None:
    log = recorded(end=False).record(Skipped("launches of CUDA graph replays", "recorded before attach", 0))
    log.record(Failure("launches", "ValueError: x", 2)).record(End("exit", 0))
    findings = all_findings(opened(log))
    assert [(f.kind, f.severity, f.page) for f in findings] == [
        ("not_recorded", "info", "/problems"),
        ("not_recorded", "info", "/graphs/0"),
    ]
    assert findings[0].title == "Not recorded (2 times): launches (the recorder failed here: ValueError: x)"


def test_a_log_without_its_end_is_a_crash(opened: Open) -> None:
    finding = only(opened(recorded(end=False, pid=2**22 + 5)))
    assert (finding.kind, finding.severity) == ("crash", "critical")
    assert finding.title.startswith("The log has no end record: process 4194309 ended after launch 15 of step 2, ")
    assert finding.page == "/steps/2?log=0&launch=15"
    assert finding.evidence["launches"] == 16


def test_the_launch_that_did_not_return_is_named(opened: Open) -> None:
    log = recorded(steps=1, end=False, pid=2**22 + 5)
    batch = calls(50, 1, MONOTONIC_NS + 2_000_000)
    inner = {field: getattr(batch.calls, field)[1:] for field in Calls.__dataclass_fields__ if field != "KIND"}
    ended = Calls(**{**inner, "launches": [2], "state": ["raised"]})
    log.record(replace(batch, calls=ended, site=[0, 1], start_ns=batch.start_ns[1:3], end_ns=[batch.end_ns[1], -1]))
    finding = only(opened(log))
    assert finding.title.endswith("ended in launch 5 of step 1, cpp_fused_relu_0")
    assert finding.evidence["launch_returned"] is False


@pytest.mark.slow
@pytest.mark.parametrize(("end_ns", "kind"), [(-1, "crash"), (MONOTONIC_NS + 3_000_200, "not_recorded")])
def test_a_forked_child_that_died_in_a_launch(tmp_path: Path, end_ns: int, kind: str) -> None:
    """Its parent ended well; only between launches may it have left by `os._exit`."""
    recorded(pid=PID + 1).write(tmp_path / "a.log")
    path = recorded(end=False, pid=PID, parent_pid=PID + 1, forked=True).write(tmp_path / "b.log")
    path.with_name("b.log.ring").write_bytes(ring([ring_call(30, 3, [(0, MONOTONIC_NS + 3_000_100, end_ns)])]))
    with open_trace(tmp_path) as trace:
        assert [one.kind for one in all_findings(trace)] == [kind]


SPAWNED = ["python", "-c", "from multiprocessing.spawn import spawn_main", "--multiprocessing-fork"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "parent_ended", "kinds"),
    [
        ({"forked": True}, True, {"not_recorded"}),
        ({"argv": SPAWNED}, True, {"not_recorded"}),
        ({"forked": True}, False, {"crash"}),
        ({}, True, {"crash"}),
    ],
)
def test_a_worker_that_ends_without_saying_so(
    tmp_path: Path, how: dict[str, Any], parent_ended: bool, kinds: set[str]
) -> None:
    """Pools end their workers; of another process that was killed the parent's end says nothing."""
    parent, child = 2**22 + 6, 2**22 + 5
    recorded(end=parent_ended, pid=parent).write(tmp_path / "a.log")
    recorded(end=False, pid=child, parent_pid=parent, **how).write(tmp_path / "b.log")
    with open_trace(tmp_path, index_dir=tmp_path / "index") as trace:
        found = all_findings(trace)
    assert {finding.kind for finding in found} == kinds
    if kinds == {"not_recorded"}:
        (finding,) = found
        assert (finding.severity, finding.evidence) == ("info", {"pid": child, "parent_pid": parent})
        forked = "forked " if "forked" in how else ""
        assert finding.title == f"Not recorded: the end of {forked}process 4194309 (it wrote no end record)"


@pytest.mark.parametrize(
    ("error", "parent", "severity"),
    [("ValueError", 7, "info"), ("ValueError", 8, "critical"), ("torch.distributed.DistBackendError", 7, "critical")],
)
def test_a_rank_that_its_launcher_ended(tmp_path: Path, error: str, parent: int, severity: str) -> None:
    """When one rank fails the others are ended by SIGTERM; one that only missed another rank did not fail first."""
    recorded(end=False, pid=2**22 + 5, parent_pid=7, world_size=2).write(tmp_path / "a.log")
    failed = recorded(end=False, pid=2**22 + 6, parent_pid=parent, world_size=2)
    failed.record(UncaughtException(error, "no", []))
    failed.record(End("exit", MONOTONIC_NS + 9_000_000)).write(tmp_path / "b.log")
    with open_trace(tmp_path, index_dir=tmp_path / "index") as trace:
        found = {finding.kind: finding for finding in all_findings(trace)}
    assert found.keys() == {"crash", "exception"}
    assert found["crash"].severity == severity
    assert ("process 4194310, of the same parent, had failed" in found["crash"].title) is (severity == "info")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "steps", "parent", "ended"),
    [
        ("Connection closed by peer", 2, 7, [{"rank": 1, "last_step": 1}]),
        ("Connection closed by peer", 3, 7, []),
        ("Connection closed by peer", 2, 8, []),
        ("bad batch", 2, 7, []),
    ],
    ids=["fewer steps", "as many steps", "of another run", "no lost rank"],
)
def test_a_rank_that_lost_one_which_had_ended_earlier(
    tmp_path: Path, text: str, steps: int, parent: int, ended: list[dict[str, int]]
) -> None:
    recorded(steps, pid=2**22 + 5, parent_pid=parent, rank=1, world_size=2).write(tmp_path / "a.log")
    lost = recorded(end=False, pid=2**22 + 6, parent_pid=7, rank=0, world_size=2)
    lost.record(UncaughtException("RuntimeError", text, []))
    lost.record(End("exit", MONOTONIC_NS + 9_000_000)).write(tmp_path / "b.log")
    with open_trace(tmp_path, index_dir=tmp_path / "index") as trace:
        (finding,) = [one for one in all_findings(trace) if one.kind == "exception"]
    assert finding.evidence["ended_before"] == ended
    assert [line.partition(",")[0] for line in finding.proof] == ["Rank 1 had already ended"] * len(ended)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "severity"),
    [(15, None, "info"), (1, None, "info"), (None, 143, "info"), (9, None, "critical"), (None, 137, "critical")],
)
def test_a_process_that_was_asked_to_stop(opened: Open, number: int | None, code: int | None, severity: str) -> None:
    log = recorded(end=False, pid=2**22 + 5)
    log.record(ProcessEnd(2**22 + 5, code, number, timed_out=False, duration_ns=1))
    finding = only(opened(log))
    assert (finding.kind, finding.severity) == ("crash", severity)
    assert ("was stopped by SIG" in finding.title) is (severity == "info")


def test_a_living_process_has_not_crashed(opened: Open) -> None:
    now = time.time_ns()
    assert all_findings(opened(recorded(end=False, pid=os.getpid(), unix_ns=now))) == []


@pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="only Linux says when a process began")
def test_a_younger_process_of_the_same_id_is_another(opened: Open) -> None:
    long_ago = time.time_ns() - 10**9 * 86_400 * 365
    assert only(opened(recorded(end=False, pid=os.getpid(), unix_ns=long_ago))).kind == "crash"


def test_the_worst_comes_first(opened: Open) -> None:
    log = recorded(end=False)
    log.artifact("dynamo_graph_break_reason", GRAPH_BREAK, "string", **ids(5, 0))
    compile_records(log, 5, 0, fail_type="X", fail_reason="Dynamo recompile limit exceeded")
    log.record(calls(900, 900, MONOTONIC_NS + 9_000_000_000))
    assert [f.severity for f in all_findings(opened(log))] == ["critical", "warning", "info"]


def test_kinds_under_which_a_check_counts_a_finding() -> None:
    def of(kind: str, missed: str | None = None) -> set[str]:
        return kinds_of(Finding(kind, "info", "", "", {"kind": missed} if missed else {}, "/"))

    assert of("growth") == {"growth"}
    assert of("recompile_limit") == {"recompile_limit", "recompile"}
    assert of("not_recorded", "nonfinite") == {"not_recorded", "nonfinite"}
    assert of("not_recorded") == {"not_recorded"}
