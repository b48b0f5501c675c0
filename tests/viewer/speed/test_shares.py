"""Graph breaks and recompiles that cost little say their share, also where each call of a function is a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stepscope.tracer.schema.launches import Calls, Launches
from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.steps import Steps
from stepscope.viewer.findings import all_findings
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, compile_records, graph, run

Open = Callable[[LogBuilder | bytes], Trace]
MS = 1_000_000
BREAK = b"""Graph break in user code at /src/model.py:5
Graph Break Reason: Encountered graph break

Unsupported Tensor.item() call

User code traceback:
  File "/src/model.py", line 5, in f
    worst = error.item()

"""


def ids(frame: int, number: int) -> dict[str, Any]:
    return {"frame_id": frame, "frame_compile_id": number, "attempt": 0}


def broken(gap_us: int, calls: int = 10, text: bytes = BREAK) -> LogBuilder:
    """Calls that are steps: a graph of 1 ms, a break, and a graph of 1 ms; the rest was compiled again once."""
    log = LogBuilder().record(run(guesses_steps=True)).record(graph()).record(graph(1, compile_id="1/0"))
    log.artifact("dynamo_graph_break_reason", text, "string", **ids(0, 0))
    compile_records(log, 0, 0, co_name="f")
    compile_records(log, 1, 0, co_name="torch_dynamo_resume_in_f_at_5")
    log.artifact("recompile_reasons", b"1/0: ___stack0 > 0.5  # if worst > 0.5:  # model.py:6 in f", **ids(1, 1))
    compile_records(log, 1, 1, co_name="torch_dynamo_resume_in_f_at_5")
    end = MONOTONIC_NS
    for call in range(calls):
        first = end
        second = first + MS + gap_us * 1000
        end = second + MS
        row = Calls(
            [2 * call, 2 * call + 1], [0, 1], [0, 0], [call, call], [1, 1], [None, None], [first, second], [MS, MS],
            [1, 1], ["ok", "ok"],
        )  # fmt: skip
        log.record(Launches(row, [0, 0], [first, second], [first + MS, second + MS]))
        log.record(Steps([call], ["inference"], ["call"], [first], [end]))
    return log.record(End("exit", end))


def found(trace: Trace, *kinds: str) -> list[Finding]:
    return [one for one in all_findings(trace) if one.kind in kinds]


def test_a_break_that_costs_little_says_its_share(opened: Open) -> None:
    (finding,) = found(opened(broken(500)), "graph_break", "synchronizing_call")
    assert finding.kind == "graph_break"
    assert "Host work at this break takes 20 % of a step (500 us of 2.50 ms)." in finding.proof
    assert (finding.severity, finding.evidence["share"]) == ("info", 0.2)


def test_a_break_in_what_the_function_calls(opened: Open) -> None:
    """The function resumes behind the call, and the finding names the line of the break."""
    inner = b'line 5, in f\n    worst = check(error)\n  File "/src/checks.py", line 7, in check\n'
    log = broken(3000, text=BREAK.replace(b"line 5, in f\n", inner))
    (finding,) = found(opened(log), "graph_break", "synchronizing_call")
    assert finding.kind == "synchronizing_call"
    assert "checks.py:7" in finding.title


def test_two_causes_on_one_line_tell_its_share_once(opened: Open) -> None:
    log = broken(500)
    other = BREAK.replace(b"Encountered graph break", b"Unsupported call")
    log.artifact("dynamo_graph_break_reason", other, "string", **ids(2, 0))
    compile_records(log, 2, 0)
    first, second = found(opened(log), "graph_break")
    assert "Host work at the 2 graph breaks of this line takes 20 % of a step (500 us of 2.50 ms)." in first.proof
    assert not any("of a step" in line for line in second.proof)
    assert "share" not in second.evidence


def test_a_break_that_costs_much_is_told_once(opened: Open) -> None:
    (finding,) = found(opened(broken(3000)), "graph_break", "synchronizing_call")
    assert finding.kind == "synchronizing_call"
    assert finding.title.startswith(
        "Host work at the graph break in model.py:5 takes 60 % of a step (3.00 ms of 5.00 ms)"
    )


def test_no_share_is_said_of_few_steps(opened: Open) -> None:
    (finding,) = found(opened(broken(500, calls=3)), "graph_break", "synchronizing_call")
    assert "share" not in finding.evidence


def test_recompiles_say_what_they_took_of_the_run(opened: Open) -> None:
    (finding,) = found(opened(broken(500)), "recompile", "recompiles_each_step")
    assert finding.proof == [
        "The recompile took 1.50 ms of the 25.0 ms of this run.",
        "___stack0 is a value from before the graph break after which this code resumes.",
    ]
    assert (finding.evidence["recompile_ns"], finding.evidence["share"]) == (1_500_000, 0.06)
