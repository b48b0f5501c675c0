"""A model that an evaluation left in eval mode, told from the compiles and the calls of their graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stepscope.tracer.schema.launches import Calls, Launches
from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.states import EvalCall
from stepscope.tracer.schema.steps import StepMarks
from stepscope.viewer.findings import all_findings
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, graph, run

pytestmark = pytest.mark.slow


Open = Callable[[LogBuilder], Trace]
GRAD_MODE = "GLOBAL_STATE changed: grad_mode"
IN_TRAIN_MODE = "L['self']._modules['drop'].training == True  # return F.dropout(input, self.p, self.training)"
STEP_NS = 10_000_000
OLD, EVALUATION, NEW = range(3)


def trained(*graphs: int, guard: str = IN_TRAIN_MODE, has_optimizer: bool = True) -> LogBuilder:
    """A frame of three compiles: for training, for an evaluation and for training again. Each step calls a graph."""
    log = LogBuilder().record(run(guesses_steps=True)).torch("str", ["/src/model.py", 7])
    for number, reasons in enumerate((None, f"0/0: {GRAD_MODE}", f"0/1: {GRAD_MODE}\n0/0: {guard}")):
        ids: Any = {"frame_id": 0, "frame_compile_id": number, "attempt": 0}
        stack = [{"line": 10, "name": "forward", "filename": 7, "loc": ""}]
        log.torch("dynamo_start", {"stack": stack}, **ids)
        if reasons is not None:
            log.artifact("recompile_reasons", reasons.encode(), **ids)
        metrics = {
            "co_name": "forward", "co_filename": "/src/model.py", "co_firstlineno": 10, "fail_type": None,
            "fail_reason": None, "restart_reasons": [], "has_guarded_code": True, "duration_us": 1000,
        }  # fmt: skip
        log.torch("compilation_metrics", metrics, **ids)
        phase: Any = "inference" if number == EVALUATION else "forward"
        log.record(graph(number, compile_id=f"0/{number}", aot_id=f"{number}_{phase}", phase=phase))
    for step, called in enumerate(graphs):
        begin = MONOTONIC_NS + 1_000_000_000 + step * STEP_NS
        log.record(
            Launches(
                Calls([step], [called], [0], [step], [1], [None], [begin], [1000], [1], ["ok"]),
                [0],
                [begin],
                [begin + 9],
            )
        )
        if called != EVALUATION and has_optimizer:
            log.record(StepMarks(["optimizer"], [0], ["SGD"], [1], [begin + STEP_NS // 2]))
    return log.record(End("exit", MONOTONIC_NS + 2_000_000_000))


def kinds(trace: Trace) -> list[str]:
    return [one.kind for one in all_findings(trace)]


def test_a_model_is_left_in_eval_mode(opened: Open) -> None:
    trace = opened(trained(OLD, OLD, EVALUATION, *[NEW] * 3, EVALUATION, *[NEW] * 3))
    found = {one.kind: one for one in all_findings(trace)}
    finding, recompiled = found["left_in_eval"], found["recompile"]
    assert finding.severity == "warning"
    assert finding.title == (
        "forward (model.py:10) ran with self.drop in eval mode in 6 training steps, from step 3 to the end, after an"
        " evaluation in step 2"
    )
    assert finding.proof[0].startswith("It was in train mode up to step 1; ")
    assert recompiled.evidence["compile_ids"] == ["0/1"]


def test_the_line_that_called_eval_is_named(opened: Open) -> None:
    log = trained(OLD, OLD, EVALUATION, *[NEW] * 6)
    begin = MONOTONIC_NS + 1_000_000_000
    for line, start_ns in ((3, begin), (41, begin + 2 * STEP_NS - 9), (50, begin + 5 * STEP_NS)):
        log.record(EvalCall(start_ns, "/src/train.py", line))
    (finding,) = (one for one in all_findings(opened(log)) if one.kind == "left_in_eval")
    assert finding.source is not None
    assert (finding.source.file, finding.source.line) == ("/src/train.py", 41)
    assert finding.proof[0].startswith(
        "It was in train mode up to step 1, when train.py:41 called eval(); call train()"
    )


def test_of_several_lines_that_called_eval_none_is_named(opened: Open) -> None:
    log = trained(OLD, OLD, EVALUATION, *[NEW] * 6)
    for line in (41, 42):
        log.record(EvalCall(MONOTONIC_NS + 1_000_000_000 + 2 * STEP_NS - line, "/src/train.py", line))
    (finding,) = (one for one in all_findings(opened(log)) if one.kind == "left_in_eval")
    assert finding.source is not None
    assert finding.source.file == "/src/model.py"
    assert finding.proof[0].startswith("It was in train mode up to step 1; call train()")


@pytest.mark.parametrize(
    "graphs",
    [
        [OLD, EVALUATION, *[NEW] * 4],
        [OLD, EVALUATION, *[NEW] * 6, OLD],
        [OLD, EVALUATION, OLD, EVALUATION, *[NEW] * 6],
        [OLD, *[NEW] * 6],
        [OLD, *[NEW] * 6, EVALUATION],
        [EVALUATION, *[NEW] * 6],
    ],
    ids=["few", "back", "trained_after_an_evaluation", "without_evaluation", "evaluation_last", "never_in_train_mode"],
)
def test_what_may_be_meant_is_no_finding(opened: Open, graphs: list[int]) -> None:
    assert "left_in_eval" not in kinds(opened(trained(*graphs)))


def test_other_guards_and_steps_without_an_optimizer_are_no_finding(opened: Open) -> None:
    graphs = [OLD, EVALUATION, *[NEW] * 6]
    assert "left_in_eval" in kinds(opened(trained(*graphs)))
    assert "left_in_eval" not in kinds(opened(trained(*graphs, guard="L['self'].training == False")))
    assert "left_in_eval" not in kinds(opened(trained(*graphs, guard="L['self'].depth == 3")))
    assert "left_in_eval" not in kinds(opened(trained(*graphs, has_optimizer=False)))
