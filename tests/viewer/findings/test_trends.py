"""Findings about the course of a tensor over steps: each on a log that has it and on a healthy one like it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.tracer.schema.launches import Tensors
from stepscope.tracer.schema.parameters import LearningRate, ZeroGradients
from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.steps import (
    ClearedGradients,
    MisplacedClipping,
    MissingGradients,
    SharedParameters,
    UntrainedParameters,
)
from stepscope.viewer.findings import all_findings, kinds_of
from stepscope.viewer.findings.values.climbs import climb_of
from stepscope.viewer.findings.values.lost_update import is_lost, stop_of
from stepscope.viewer.findings.values.parameter_jump import jump_of
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.shared_parameters import shared
from stepscope.viewer.values.queries.trends import Course
from tests.logs.synthetic import UNIX_NS, LogBuilder, graph, run, tensors
from tests.logs.value_logs import NAN, Program, Stat, ValueLog

Open = Callable[[LogBuilder | bytes], Trace]


def course(numbers: Sequence[float | None], dtype: str = "float32") -> Course:
    steps = list(range(len(numbers)))
    bad = [one is None for one in numbers]
    return Course(0, 0, 0, None, "after", "largest", dtype, 64, steps, list(numbers), steps, bad)


def of_size(largest: float) -> Stat:
    return Stat(min=-largest, max=largest, mean=0.0, std=largest / 2)


@pytest.mark.slow
def test_growth_that_begins_first_is_the_finding(opened: Open) -> None:
    program = (
        Program()
        .launch("extern_kernels.mm", ["primals_1", "primals_2"], ["buf0"], aten=["aten.mm"])
        .launch("cpp_fused_exp_0", ["buf0"], ["buf1"], "cpp", aten=["aten.exp"])
    )
    log = ValueLog(program)
    for step in range(9):
        weight = of_size(3.0 ** max(step - 2, 0))
        product = Stat(pinf=64, min=None, max=None, mean=None, std=None, first_bad=0) if step == 8 else weight
        late = of_size(10.0 ** (3 * max(step - 3, 0)))
        log.call(program, step, primals_2_before=weight, buf0_after=product, buf1_after=NAN if step == 8 else late)
    (finding,) = [one for one in all_findings(opened(log.end())) if one.kind in ("exploding_values", "nonfinite")]
    assert (finding.severity, finding.step, finding.launch) == ("critical", 3, 7)
    assert kinds_of(finding) == {"exploding_values", "nonfinite"}
    assert finding.title.startswith("buf1 (model.py:11) grew by a factor of 1,000 per step from step 3 on until")
    assert finding.evidence["first_nonfinite_step"] == 8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ([0.1, 0.2, 0.4], ["The learning rate of SGD (train.py:9) has risen from 0.1 in its first step to about 0.4."]),
        ([0.0, 0.1, 0.2], ["The learning rate of SGD (train.py:9) has risen from 0 in its first step to about 0.2."]),
        ([0.1, 0.2, 0.19], []),
        ([0.1, 0.4, 0.2], []),
        ([0.0], []),
    ],
)
def test_growth_after_a_slow_rise_of_the_learning_rate(opened: Open, rates: list[float], said: list[str]) -> None:
    program = Program().launch("extern_kernels.mm", ["primals_1", "primals_2"], ["buf0"], aten=["aten.mm"])
    log = ValueLog(program, unix_ns=UNIX_NS + 1_000_000_000)
    for before, rate in pairwise([None, *rates]):
        log.log.record(LearningRate("SGD", rate or 0.0, before, "/src/train.py", 9))
    for step in range(12):
        log.call(program, step, buf0_after=of_size(10.0 ** max(step - 5, 0)))
    (finding,) = [one for one in all_findings(opened(log.end())) if one.kind == "exploding_values"]
    assert [line for line in finding.proof if "learning rate" in line] == said


@pytest.mark.slow
def test_growth_begins_with_the_jump_of_the_learning_rate_after_a_warm_up(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.logs.value_logs.CALL_NS", 3_000_000)  # the time of the three records of a step
    program = Program().launch("extern_kernels.mm", ["primals_1", "primals_2"], ["buf0"], aten=["aten.mm"])
    log = ValueLog(program, unix_ns=UNIX_NS + 4_500_000)  # so that a rate comes between two calls
    rates = [1e-3, 2e-3, 3e-3, 4e-3, 40.0, 40.0, 40.0, 40.0]
    for step, (rate, size) in enumerate(zip(rates, [1.0, 1.5, 2.1, 2.8, 3.4, 2e4, 5e9, 4e22], strict=True)):
        log.call(program, step, primals_2_before=of_size(size))
        log.log.record(LearningRate("SGD", rate, rates[step - 1] if step else None, "/src/train.py", 9))
    (finding,) = [one for one in all_findings(opened(log.end())) if one.kind == "exploding_values"]
    assert " in step 4 to 4e+22 in step 7, after the learning rate of SGD (train.py:9) had risen" in finding.title


@pytest.mark.slow
def test_a_nan_of_another_cause_keeps_its_finding(opened: Open) -> None:
    """It appears before the growth ends, or is made from small numbers."""
    program = (
        Program()
        .launch("extern_kernels.mm", ["primals_1", "primals_2"], ["buf0"], aten=["aten.mm"])
        .launch("cpp_fused_log_0", ["primals_3"], ["buf1"], "cpp", aten=["aten.log"])
    )
    log = ValueLog(program)
    for step in range(9):
        large = of_size(1000.0**step)
        lost = Stat(pinf=64, min=None, max=None, mean=None, std=None, first_bad=0)
        log.call(program, step, buf0_after=lost if step == 8 else large, buf1_after=NAN if step == 8 else of_size(1.0))
    found = {one.kind: one for one in all_findings(opened(log.end()))}
    assert set(found) == {"exploding_values", "nonfinite"}
    assert found["nonfinite"].kernel == "cpp_fused_log_0"
    assert any(said.startswith("Then this happens: fp32 overflow in") for said in found["exploding_values"].proof)


def test_steep_growth_needs_few_steps_if_the_tensor_is_lost() -> None:
    assert climb_of(course([0.8, 141.0, 2e13, None])) is not None
    assert climb_of(course([0.8, 141.0, 2e13])) is None
    assert climb_of(course([0.8, 14.0, 2e13, None])) is None


def test_a_tensor_that_is_lost_while_it_is_small_did_not_overflow() -> None:
    """Something else made it NaN; the largest float16 is 65,504."""
    numbers = [0.01, 0.1, 0.5, 2.0, 9.0, 130.0, None]
    assert climb_of(course(numbers)) is None
    assert climb_of(course(numbers, "float16")) is not None


@pytest.mark.parametrize(
    "numbers",
    [
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0],
        [2.0**n for n in range(10)],  # grows, and is still small
        [1e-9, 1e-7, 1e-5, 1e-3, 0.1, 1.0, 1.0, 1.0],
        [1e6] * 8,
        [1.0, 1e9, 1.0, 1e9, 1.0, 1e9],
        [1e-3, 1e3, 1e9],
        [None] * 6,
    ],
)
def test_what_does_not_explode(numbers: list[float | None]) -> None:
    assert climb_of(course(numbers)) is None


def test_a_climb_begins_where_the_growth_begins() -> None:
    climb = climb_of(course([5.0, 4.0, 1.0, 10.0, 100.0, 1000.0, 10000.0]))
    assert climb is not None
    assert (climb.first, climb.last, climb.is_lost, climb.growth) == (2, 6, False, 10000.0)


def test_a_jump_needs_quiet_steps_before() -> None:
    jump = jump_of(course([1.0, 1.01, 1.02, 1.03, 9.0, 9.1]))
    assert jump is not None
    assert jump.position == 4
    assert math.isclose(jump.factor, 9.0 / 1.03)
    for healthy in ([1.0, 1.5, 2.2, 3.1, 9.5], [1.0, 9.0, 9.0, 9.0, 9.0], [1.0, 1.0, 1.0, 1.0, 2.0, 2.0], [1.0] * 9):
        assert jump_of(course(healthy)) is None


def test_a_counter_that_its_dtype_stops() -> None:
    stop = stop_of(course([254.0, 255.0, 256.0, 256.0, 256.0, 256.0], "bfloat16"))
    assert stop is not None
    assert (stop.position, stop.amount) == (2, 1.0)
    kept = [254.0, 255.0, 256.0, 256.0, 256.0, 256.0]
    assert stop_of(course(kept)) is None  # float32 could go on, so the program stopped counting
    assert stop_of(course([1.0, 2.0, 3.0, 3.0, 3.0, 3.0], "bfloat16")) is None
    assert stop_of(course([255.0, 256.0, 256.0], "bfloat16")) is None


@given(st.floats(2.0**-10, 2.0**10, width=16), st.floats(2.0**-10, 2.0**10, width=16))
def test_a_lost_amount_is_what_float16_loses(value: float, amount: float) -> None:
    added = np.float16(value) + np.float16(amount)
    if is_lost(value, amount, "float16") and amount < float(np.spacing(np.float16(value))) / 2:
        assert added == np.float16(value)
    if added == np.float16(value):
        assert is_lost(value, amount, "float16")


@pytest.mark.slow
def test_an_activation_that_is_dead(opened: Open) -> None:
    program = Program().launch("cpp_fused_relu_0", ["primals_1"], ["buf0"], "cpp", aten=["aten.relu"])
    dead, part = ValueLog(program), ValueLog(program)
    for step in range(6):
        zeros = Stat(zero=64, min=0.0, max=0.0, mean=0.0, std=0.0)
        dead.call(program, step, buf0_after=zeros)
        part.call(program, step, buf0_after=zeros if step != 3 else Stat(zero=63, min=0.0))
    (finding,) = all_findings(opened(dead.end()))
    assert (finding.kind, finding.severity, finding.evidence["steps"]) == ("dead_activation", "warning", 6)
    assert finding.title == "buf0, the output of relu (model.py:10), is zero everywhere in every step"
    assert all_findings(opened(part.end())) == []


@pytest.mark.slow
def test_zeros_that_another_operator_of_the_kernel_makes_are_no_finding(opened: Open) -> None:
    operators = ["aten.relu", "aten.amin", "aten.zeros"]
    program = Program().launch("cpp_fused_amin_relu_zeros_0", ["primals_1"], ["buf0", "buf1"], "cpp", aten=operators)
    zeros = Stat(zero=64, min=0.0, max=0.0, mean=0.0, std=0.0)
    healthy, dead = ValueLog(program), ValueLog(program)
    for step in range(6):
        healthy.call(program, step, buf0_after=Stat(zero=30, min=0.0), buf1_after=zeros)
        dead.call(program, step, buf0_after=zeros, buf1_after=zeros)
    assert all_findings(opened(healthy.end())) == []
    (finding,) = all_findings(opened(dead.end()))
    assert (finding.kind, finding.buffer, finding.evidence["tensors"]) == ("dead_activation", "buf0", 2)
    assert finding.proof[-1] == "1 other tensor behind a rectifier stayed zero in every step"


@pytest.mark.slow
def test_zeros_that_come_from_zeros_are_no_finding(opened: Open) -> None:
    program = Program().launch("cpp_fused_relu_0", ["primals_1"], ["buf0"], "cpp", aten=["aten.relu"])
    log = ValueLog(program)
    for step in range(6):
        log.call(program, step, primals_1=Stat(zero=64, min=0.0, max=0.0), buf0=Stat(zero=64, min=0.0, max=0.0))
    assert all_findings(opened(log.end())) == []


@pytest.mark.parametrize(
    ("names", "unowned", "severity", "told"),
    [
        (["first.a", "first.b"], 0, "info", "had no gradient in its first 5 steps"),
        ([None, None], 2, "warning", "had no gradient in its first 5 steps and belong to no module"),
        ([None, "first.b"], 1, "warning", "steps, and 1 of them belongs to no module"),
    ],
)
def test_parameters_without_gradients(
    opened: Open, names: list[str | None], unowned: int, severity: str, told: str
) -> None:
    log = LogBuilder().record(run())
    log.record(MissingGradients("Adam", 5, 6, 2, unowned, names, [[4, 3], [4]], "/src/train.py", 12))
    (finding,) = [one for one in all_findings(opened(log.record(End("exit", 1)))) if one.kind == "missing_gradients"]
    assert (finding.severity, finding.source and finding.source.line) == (severity, 12)
    assert finding.title.startswith("2 of 6 parameters of Adam (train.py:12) had no")
    assert finding.title.endswith(told)
    assert any("first.b" in said for said in finding.proof) == ("first.b" in names)


@pytest.mark.parametrize(
    ("cleared", "line", "told"),
    [
        (
            5,
            11,
            "zero_grad() (train.py:11) clears the gradients before each of the first 5 steps of Adam (train.py:12",
        ),
        (
            1,
            12,
            "Adam (train.py:12) changed nothing in its first 5 steps, because none of its parameters had a gradient",
        ),
    ],
)
def test_an_optimizer_without_any_gradient(opened: Open, cleared: int, line: int, told: str) -> None:
    names: list[str | None] = ["a", "b"]
    record = MissingGradients(
        "Adam", 5, 2, 2, 0, names, [[4, 3], [4]], "/src/train.py", 12, cleared, "/src/train.py", 11
    )  # fmt: skip
    findings = all_findings(opened(LogBuilder().record(run()).record(record).record(End("exit", 1))))
    (finding,) = [one for one in findings if one.kind == "missing_gradients"]
    assert (finding.severity, finding.source and finding.source.line) == ("warning", line)
    assert finding.title.startswith(told)


def test_parameters_in_a_reentrant_checkpoint_have_no_gradient(opened: Open) -> None:
    record = MissingGradients(
        "Adam", 5, 6, 2, 0, ["0.weight", "0.bias"], [[4, 3], [4]], "/src/train.py", 12, 0, None, None, 2, "/src/m.py", 7
    )
    findings = all_findings(opened(LogBuilder().record(run()).record(record).record(End("exit", 1))))
    (finding,) = [one for one in findings if one.kind == "missing_gradients"]
    assert (finding.severity, finding.source and finding.source.line) == ("warning", 7)
    assert finding.title.endswith(
        "steps: they run in a checkpoint (m.py:7) with use_reentrant=True, none of whose inputs requires a gradient"
    )
    assert any("use_reentrant=False" in said for said in finding.proof)


SOME: list[str | None] = ["net.0.weight", "net.0.bias"]


@pytest.mark.parametrize(
    ("zero", "names", "tiny", "dtype", "severity", "said"),
    [
        (
            2,
            SOME,
            0,
            "float32",
            "info",
            "The gradients of 2 of 4 parameters of Adam (train.py:12) were zero before its",
        ),
        (
            4,
            SOME * 2,
            0,
            "float32",
            "warning",
            "All gradients of Adam (train.py:12) were zero before its steps 6, 11 and",
        ),
        (
            4,
            SOME * 2,
            0,
            "float16",
            "warning",
            "All gradients of Adam (train.py:12) were zero before its steps 6, 11 and",
        ),
        (0, [], 45, "float16", "warning", "The gradients that Adam (train.py:12) gets are too small for float16: in"),
        (0, [], 45, "float32", None, ""),
    ],
)
def test_gradients_that_are_zero_or_tiny(
    opened: Open, zero: int, names: list[str | None], tiny: int, dtype: str, severity: str | None, said: str
) -> None:
    log = LogBuilder().record(run()).record(graph())
    log.record(Tensors(0, 0, 0, [replace(one, dtype=dtype) for one in tensors().tensors]))
    log.record(ZeroGradients("Adam", [6, 11, 19], 4, zero, names, 100, 50, tiny, "/src/train.py", 12))
    found = [one for one in all_findings(opened(log.record(End("exit", 1)))) if one.kind == "zero_gradients"]
    assert [(one.severity, one.title.startswith(said)) for one in found] == ([(severity, True)] if severity else [])
    assert all(any("GradScaler" in line for line in one.proof) == (dtype == "float16") for one in found)


@pytest.mark.parametrize(("zero", "kinds"), [(["net.0.bias"], []), (["net.1.bias"], ["zero_gradients"])])
def test_gradients_that_were_cleared_are_one_finding(opened: Open, zero: list[str | None], kinds: list[str]) -> None:
    log = LogBuilder().record(run())
    log.record(MissingGradients("Adam", 5, 4, 1, 0, ["0.bias"], [[3]], "/src/train.py", 12))
    log.record(ZeroGradients("Adam", [6, 11, 19], 4, 1, zero, 100, 50, 0, "/src/train.py", 12))
    found = all_findings(opened(log.record(End("exit", 1))))
    assert [one.kind for one in found] == ["missing_gradients", *kinds]


@pytest.mark.parametrize(
    ("looked", "zero", "elements", "zeros", "tiny"),
    [([6, 11, 19], 0, 100, 100, 45), ([6, 11, 19], 0, 0, 0, 45), ([], 2, 100, 50, 0), ([6], -2, 100, 50, 0)],
)
def test_damaged_records_of_gradients_are_left_out(
    opened: Open, looked: list[int], zero: int, elements: int, zeros: int, tiny: int
) -> None:
    log = LogBuilder().record(run()).record(graph())
    log.record(Tensors(0, 0, 0, [replace(one, dtype="float16") for one in tensors().tensors]))
    log.record(ZeroGradients("Adam", looked, 4, zero, SOME, elements, zeros, tiny, "/src/train.py", 12))
    log.record(MissingGradients("Adam", 5, 4, 2, 0, SOME, [[3]] * 2, None, None, 0, None, None, -2, "/src/m.py", 7))
    (finding,) = all_findings(opened(log.record(End("exit", 1))))
    assert (finding.kind, finding.severity) == ("missing_gradients", "info")


def test_parameters_in_a_plain_list_are_not_trained(opened: Open) -> None:
    names = ["L['self'].blocks[0]._modules['up']._parameters['weight']", "L['self'].blocks[1]._parameters['bias']"]
    log = LogBuilder().record(run())
    log.record(UntrainedParameters("Adam", 4, "L['self'].blocks", 18, names, "/src/train.py", 12))
    findings = all_findings(opened(log.record(End("exit", 1))))
    (finding,) = [one for one in findings if one.kind == "untrained_parameters"]
    assert (finding.severity, finding.source and finding.source.line) == ("warning", 12)
    assert finding.title.startswith("18 parameters in self.blocks belong to no optimizer and will not be trained")
    assert finding.proof[0] == "In it: self.blocks[0].up.weight, self.blocks[1].bias and 16 more"


@pytest.mark.parametrize(("parameters", "them"), [(1, "it"), (2, "them")])
def test_registered_parameters_without_an_optimizer(opened: Open, parameters: int, them: str) -> None:
    names = ["L['self']._modules['adapter']._parameters['weight']"] * parameters
    record = UntrainedParameters("Adam", 4, "L['self']._modules['adapter']", parameters, names, None, None, True)
    findings = all_findings(opened(LogBuilder().record(run()).record(record).record(End("exit", 1))))
    (finding,) = [one for one in findings if one.kind == "untrained_parameters"]
    number = f"{parameters} parameter{'s' * (parameters > 1)}"
    assert finding.title == f"No optimizer trains {number} in self.adapter, although gradients are computed for {them}"
    assert finding.severity == "info"


@pytest.mark.parametrize(
    ("others", "is_in_graph", "is_written", "severity"),
    [(1, True, False, "warning"), (1, False, True, "info"), (3, True, True, "warning"), (3, False, False, "info")],
)
def test_parameters_that_share_the_memory_of_trained_ones(
    opened: Open, others: int, is_in_graph: bool, is_written: bool, severity: str
) -> None:
    names, copies = [[f"{name}.{n}.weight" for n in range(others)] for name in ("student", "teacher")]
    record = SharedParameters("SGD", others, names, copies, is_in_graph, is_written, "/src/train.py", 12)
    findings = all_findings(opened(LogBuilder().record(run()).record(record).record(End("exit", 1))))
    (finding,) = [one for one in findings if one.kind == "shared_parameters"]
    assert (finding.severity, finding.source and finding.source.line) == (severity, 12)
    more = "" if others == 1 else " and 2 more parameters"
    assert finding.title.startswith(f"Each step of SGD (train.py:12) also changes teacher.0.weight{more}, which ")
    assert finding.proof[0].startswith("The same memory: teacher.0.weight with student.0.weight")
    assert len(finding.proof) == 2 + is_in_graph + is_written
    assert ("The program writes to this memory between two steps" in finding.proof) == is_written


def test_tensors_that_are_no_copies_of_parameters(opened: Open) -> None:
    names = ["model.0.weight", "model.0.bias"], ["weights['0.weight'] of ema", "weights['0.bias'] of ema"]
    record = SharedParameters("SGD", 6, *names, False, True, "/src/train.py", 9, are_tensors=True)
    findings = all_findings(opened(LogBuilder().record(run()).record(record).record(End("exit", 1))))
    (finding,) = [one for one in findings if one.kind == "shared_parameters"]
    assert finding.severity == "info"
    assert finding.title == (
        "Each step of SGD (train.py:9) also changes weights['0.weight'] of ema and 5 more tensors, which have the"
        " memory of model.0.weight and others that it trains"
    )
    assert finding.proof[-1].startswith("state_dict() and detach() do not copy: ")


@pytest.mark.parametrize(("others", "names", "copies"), [(1, [], []), (2, ["a", "b"], ["c"]), (0, ["a"], ["b"])])
def test_shared_parameters_of_a_strange_log(opened: Open, others: int, names: list[str], copies: list[str]) -> None:
    record = SharedParameters("SGD", others, names, copies, True, False, "/src/train.py", 12)
    assert shared(opened(LogBuilder().record(run()).record(record).record(End("exit", 1)))) == []


@pytest.mark.parametrize(
    ("scale", "title"),
    [
        (
            None,
            "clip_grad_norm_() (train.py:9) has no effect: it is called after AdamW (train.py:12) has stepped, and"
            " zero_grad() clears the gradients before the next step",
        ),
        (
            65536.0,
            "clip_grad_norm_() (train.py:9) limits gradients that GradScaler has multiplied by 65,536, so that those"
            " which AdamW (train.py:12) uses have a norm of at most 1.5e-05",
        ),
    ],
)
def test_gradients_that_are_clipped_at_the_wrong_time(opened: Open, scale: float | None, title: str) -> None:
    record = MisplacedClipping("AdamW", 5, 1.0, scale, "/src/train.py", 9, "/src/train.py", 12)
    findings = all_findings(opened(LogBuilder().record(run()).record(record).record(End("exit", 1))))
    (finding,) = [one for one in findings if one.kind == "misplaced_clipping"]
    assert (finding.title, finding.severity) == (title, "warning")
    assert finding.source is not None
    assert finding.source.line == 9
    assert finding.proof[0] == "This happened in 5 successive steps, with max_norm=1."


@pytest.mark.parametrize(("steps", "without", "is_told"), [(5, 0, True), (4, 0, False), (40, 4, True), (40, 5, False)])
def test_gradients_that_are_cleared_before_a_step(opened: Open, steps: int, without: int, is_told: bool) -> None:
    record = ClearedGradients("SGD", steps, 3, without, "/src/train.py", 9, "/src/train.py", 12)
    findings = all_findings(opened(LogBuilder().record(run()).record(record).record(End("exit", 1))))
    found = [one for one in findings if one.kind == "cleared_gradients"]
    assert len(found) == is_told
    for one in found:
        assert (one.severity, one.source and one.source.line, one.evidence["passes"]) == ("info", 9, 4)
        assert one.title.startswith("SGD (train.py:12) uses only the last of 4 backward passes before each step: zero_")
        assert "as for a perturbation of the parameters, or copies them, nothing is lost." in one.proof[0]
