"""Calls without gradients in training steps: told if each step has them and they take much of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stepscope.tracer.schema.launches import CallGaps, Calls, CallsInBackward, Launches
from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.steps import CallSite, DataWait, LineSamples, OptimizerStep, SampledLines, StepMarks
from stepscope.viewer.findings.evidence import Evidence
from stepscope.viewer.findings.speed import data_waits, frequent_evaluation, uncompiled_work
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, compile_records, graph, run

Open = Callable[[LogBuilder | bytes], Trace]
MS = 1_000_000
TRAIN, BACKWARD, EVALUATE = 0, 1, 2
PARTS = {"t": TRAIN, "b": BACKWARD, "e": EVALUATE}
STATE = "0/0: GLOBAL_STATE changed: grad_mode"
EVALUATED = "tbo" + 4 * "e"
"""A training call, its backward pass, the step of the optimizer, and four calls without gradients."""
SITES = {TRAIN: (7, "main", "loss = model(x)"), BACKWARD: (9, "main", "loss.backward()"),
         EVALUATE: (30, "evaluate", "model(x)")}  # fmt: skip


class Program:
    """A log of steps whose calls take 1 ms each, as the letters of a step say; `.` is 1 ms of other code."""

    def __init__(self, reason: str = STATE, **of_run: Any) -> None:
        self.log = LogBuilder().record(run(guesses_steps=True, **of_run))
        compile_records(self.log)
        self.log.artifact("recompile_reasons", reason.encode(), frame_id=0, frame_compile_id=1, attempt=0)
        compile_records(self.log, number=1)
        self.log.record(graph()).record(graph(BACKWARD, phase="backward", aot_id="0_backward"))
        self.log.record(graph(EVALUATE, phase="inference", aot_id="1_inference", compile_id="0/1"))
        for number, (line, function, code) in SITES.items():
            self.log.record(CallSite(number, "/src/train.py", line, function, code))
        self.at = MONOTONIC_NS + 2_000 * MS
        self.calls = self.step = 0

    def add(self, letters: str, times: int = 12) -> Program:
        for _ in range(times):
            for letter in letters:
                self._add(letter)
            self.step += 1
        return self

    def _add(self, letter: str) -> None:
        if letter in PARTS:
            row = Calls(
                [self.calls], [PARTS[letter]], [0], [self.step], [1], [None], [self.at], [MS], [1], ["ok"]
            )  # fmt: skip
            self.log.record(Launches(row, [0], [self.at], [self.at + MS // 2]))
            self.calls += 1
        elif letter == "d":
            self.log.record(DataWait(1, self.at, MS, 0, "/src/train.py", 29))
        elif letter == "o":
            self.log.record(OptimizerStep(1, self.at, MS, "SGD"))
            self.log.record(StepMarks(["optimizer"], [0], ["SGD"], [1], [self.at + MS - 1]))
        self.at += MS

    def end(self) -> LogBuilder:
        return self.log.record(End("exit", self.at))


def found(trace: Trace) -> list[Finding]:
    return [one for _, one in frequent_evaluation.find(Evidence(trace))]


def test_an_evaluation_in_each_step_is_told(opened: Open) -> None:
    (finding,) = found(opened(Program().add(EVALUATED).end()))
    assert finding.title == (
        "Each training step also calls forward (model.py:10) 4 times without gradients, at train.py:30, which takes"
        " 57 % of a step (4.00 ms of 7.00 ms)"
    )
    assert finding.severity == "info"
    assert finding.source is not None
    assert finding.source.code == "model(x)"
    assert finding.evidence["calls"] == 4


def test_the_line_in_the_training_loop_is_named(opened: Open) -> None:
    program = Program().add(EVALUATED)
    within = [program.at - back * MS - MS // 2 for back in (0, 1, 2)]
    files, functions = 4 * ["/src/train.py"], ["<module>", "main", "outer", "evaluate"]
    code = ["main()", "outer()", "for x in batches:", "for x in batches:"]
    program.log.record(SampledLines(0, files, [60, 12, 30, 29], functions, code))
    program.log.record(SampledLines(1, files[:2], [60, 9], functions[:2], ["main()", "loss.backward()"]))
    program.log.record(LineSamples([1] * 4, [*within, within[0] - 5 * MS], [0, 0, 0, 1]))
    (finding,) = found(opened(program.end()))
    assert "at train.py:30, called at train.py:12, which" in finding.title
    assert finding.source is not None
    assert (finding.source.line, finding.source.code) == (12, "outer()")


def test_the_line_of_the_calls_is_not_told_as_their_caller(opened: Open) -> None:
    program = Program().add(EVALUATED)
    names, code = ["start", "main", "evaluate"], ["run(path)", *["[model(x) for x in batches]"] * 2]
    program.log.record(SampledLines(0, ["/src/start.py", *["/src/train.py"] * 2], [7, 30, 30], names, code))
    program.log.record(LineSamples([1], [program.at - MS], [0]))
    (finding,) = found(opened(program.end()))
    assert "at train.py:30, which" in finding.title


def test_an_evaluation_after_an_epoch_is_usual(opened: Open) -> None:
    assert found(opened(Program().add("tbo", 12).add("e", 40).add("tbo", 12).add("e", 40).end())) == []


@pytest.mark.parametrize(
    "letters",
    [
        "tboe",  # one call
        "ttbbttbbo" + 3 * "e",  # fewer than with gradients
        "tb........oee",  # a small part
    ],
)
def test_few_or_quick_calls_are_not_told(opened: Open, letters: str) -> None:
    assert found(opened(Program().add(letters).end())) == []


def test_few_steps_do_not_suffice(opened: Open) -> None:
    assert found(opened(Program().add(EVALUATED, 8).end())) == []
    assert found(opened(Program().add(EVALUATED, 9).end()))


def test_layers_that_are_not_trained_compute_without_gradients(opened: Open) -> None:
    """They have a graph of the same function, whose compile was not because of the grad mode."""
    frozen = "0/0: tensor 'self.weight' requires_grad mismatch. expected requires_grad=1"
    assert found(opened(Program(frozen).add("eeeetbo").end())) == []


def test_reentrant_checkpoints_compute_without_gradients_first(opened: Open) -> None:
    program = Program().add("eeeetbtbo")
    program.log.record(CallsInBackward(list(range(6, program.calls, 8))))
    assert found(opened(program.end())) == []


def test_the_recorder_and_optimizers_do_not_count(opened: Open) -> None:
    program = Program().add("tbo" + 4 * ".e")
    evaluations = [call for call in range(1, program.calls) if call % 6 >= 3]
    program.log.record(CallGaps(evaluations, [call - 1 for call in evaluations], [MS] * 36, [0] * 36))
    (finding,) = found(opened(program.end()))
    assert finding.title.endswith("50 % of a step (4.00 ms of 8.00 ms)")


def test_waits_for_data_count_unless_they_have_a_finding(opened: Open) -> None:
    few = opened(Program().add("tb......oedeee").end())
    (finding,) = found(few)
    assert finding.title.endswith("36 % of a step (5.00 ms of 14.0 ms)")
    assert data_waits.find(Evidence(few)) == []
    many = opened(Program().add("tbo" + 4 * "ed").end())
    (finding,) = found(many)
    assert finding.title.endswith("36 % of a step (4.00 ms of 11.0 ms)")
    assert data_waits.find(Evidence(many))


def test_code_between_the_calls_of_an_evaluation_is_told_once(opened: Open) -> None:
    trace = opened(Program().add("tbo" + 4 * "e..").end())
    assert found(trace)
    assert uncompiled_work.find(Evidence(trace)) == []


def test_code_between_the_calls_of_a_rollout_is_uncompiled_work(opened: Open) -> None:
    trace = opened(Program().add(4 * "e.." + "tbo").end())
    assert found(trace) == []
    ((_, finding),) = uncompiled_work.find(Evidence(trace))
    assert "between one call and the next at train.py:30" in finding.title
    assert found(opened(Program().add("eeeetbo").end()))
