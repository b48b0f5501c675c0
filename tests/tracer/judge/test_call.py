"""The judge of one call, on launches that are made up."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor

from stepscope.tracer.judge.call import CallJudge
from stepscope.tracer.judge.fragments import fragment_of
from stepscope.tracer.judge.plan import NO_PLACE, FunctionPlan, Group, LaunchPlan, Operand, Written
from stepscope.tracer.judge.record import Buffer, GraphRecord, Node, Place
from stepscope.tracer.judge.stored import StoredValues, Value


@torch.library.custom_op("stepscope_tests::warning", mutates_args=())
def warning(x: Tensor) -> Tensor:
    warnings.warn("it is not deterministic", stacklevel=1)
    return x + 1


WHOLE = Place("buf2", [4], [1], 0)
GIVEN = Place("arg0", [4], [1], 0)


def stored(target: str) -> StoredValues:
    nodes = [
        Node("arg0", "input", "arg0", {"tuple": []}, {"dict": {}}, "float32", [4]),
        Node("result", "call", target, {"tuple": [{"node": "arg0"}]}, {"dict": {}}, "float32", [4]),
    ]
    buffers = [Buffer("buf2", "buf2", "ComputedBuffer", "FixedLayout", "result", ["result"], [])]
    return StoredValues(GraphRecord(None, nodes, {"arg0": GIVEN, "result": WHOLE}, {}, [], buffers, {}, {}, {}))


def plan_of(values: StoredValues) -> FunctionPlan:
    """Return two launches: what the first writes has no value in the graph, and the second reads it as a part."""
    given, result = Value("arg0", 0), Value("result", 0)
    first = LaunchPlan(0, "first", [Operand("arg0", "in", "arg0")], after=["buf0"])
    first.written = [Written(0, None, "buf0", "buf0", why_not=NO_PLACE)]
    second = LaunchPlan(1, "second", after=["buf2"])
    second.operands = [Operand("buf1", "in", None, is_open=True), Operand("arg0", "other", "arg0")]
    second.written = [Written(0, None, "buf2", "buf2", result, WHOLE)]
    fragment = fragment_of(values, [result], {given}.__contains__)
    second.groups = [Group(fragment, second.written, {given: (1, GIVEN)}, is_direct=False)]
    return FunctionPlan(values, inputs=["arg0"], launches={0: first, 1: second})


def judged(
    part: Tensor, whole: Tensor, value: Tensor, result: Tensor, target: str = "op:aten.sin.default"
) -> CallJudge:
    """Return the judge of a call that launched both."""
    judge = CallJudge(plan_of(stored(target)), lambda kernel: True)
    judge.enter([value])
    for site, before, after in ((0, [value], [part]), (1, [whole, value], [result])):
        judge.before(site, before)
        judge.after(site, after)
    judge.leave([])
    judge.finish()
    return judge


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_launch_that_read_an_unknown_part_is_not_accused_alone(is_shared: bool) -> None:
    memory, value = torch.zeros(8), torch.ones(4)
    part = memory[:4] if is_shared else torch.zeros(4)
    found = judged(part, memory, value, torch.zeros(4)).result.verdicts[-1]
    assert found.variable == "buf2"
    assert (found.word, found.suspects) == (("unjudged", (0,)) if is_shared else ("wrong", ()))


def test_a_launch_that_read_an_unknown_part_may_be_right() -> None:
    memory, value = torch.zeros(8), torch.ones(4)
    assert judged(memory[:4], memory, value, value.sin()).result.verdicts[-1].word == "ok"


def test_an_operator_that_returns_less_than_its_meta_function_is_judged() -> None:
    found = judged(torch.zeros(4), torch.zeros(8), torch.ones(0), torch.ones(0)).result.verdicts[-1]
    assert found.word == "ok"


def test_a_warning_that_the_program_turns_into_an_error_leaves_the_launch_unjudged() -> None:
    memory, value = torch.zeros(8), torch.ones(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = judged(memory[:4], memory, value, value + 1, "op:stepscope_tests.warning.default").result
    assert [one.word for one in found.verdicts] == ["unjudged", "unjudged"]
    assert found.verdicts[-1].why_not == "eager code cannot compute it: it is not deterministic"


@pytest.mark.parametrize(
    ("result", "elements", "is_found"),
    [
        (Operand("buf3", "in", None), 4, True),
        (Operand("buf3", "in", None, is_open=True), 4, False),
        (Operand("buf3", "in", None), 0, False),
        (Operand("buf2", "in", "buf2"), 4, False),
    ],
)
def test_a_result_to_which_nothing_was_written_is_told(result: Operand, elements: int, is_found: bool) -> None:
    plan = plan_of(stored("op:aten.sin.default"))
    plan.results = [result]
    judge = CallJudge(plan, lambda kernel: True)
    value, part = torch.ones(4), torch.zeros(4)
    judge.enter([value])
    judge.before(0, [value])
    judge.after(0, [part])
    judge.leave([torch.empty(elements)])
    judge.finish()
    found = [(one.variable, one.launch, one.is_result) for one in judge.result.unwritten]
    assert found == ([("buf3", 0, True)] if is_found else [])
    assert judge.result.accuses == is_found


@pytest.mark.parametrize("bits", [171, 1])
def test_truth_values_of_other_bits_accuse_nobody(bits: int) -> None:
    value = torch.tensor([0, 1, bits, 1], dtype=torch.uint8).view(torch.bool)
    wrong = torch.tensor([True, False, True, False])
    found = judged(torch.zeros(4), torch.zeros(4), value, wrong, "op:aten.logical_not.default").result.verdicts[-1]
    assert ("neither 0 nor 1" in (found.why_not or "")) == (bits > 1)


@pytest.mark.parametrize("where", ["known", "unknown", "another launch"])
def test_what_was_rounded_on_the_way_is_no_error(where: str) -> None:
    """A product was stored, and is read again, while the narrower rule may know of no rounding."""
    arguments = {"tuple": [{"node": "arg0"}, 3]}, {"tuple": [{"node": "mul"}, {"node": "arg0"}]}
    alpha = {"dict": {"alpha": {"float": (2.9).hex()}}}
    nodes = [
        Node("arg0", "input", "arg0", {"tuple": []}, {"dict": {}}, "bfloat16", [64]),
        Node("mul", "call", "op:aten.mul.Tensor", arguments[0], {"dict": {}}, "bfloat16", [64]),
        Node("sub", "call", "op:aten.sub.Tensor", arguments[1], alpha, "bfloat16", [64]),
    ]
    given, mul, sub = (Place(name, [64], [1], 0) for name in ("arg0", "buf0", "buf1"))
    buffers = [Buffer(name, name, "ComputedBuffer", "FixedLayout", None, [], []) for name in ("buf0", "buf1")]
    places = {"arg0": given, "sub": sub} | ({"mul": mul} if where == "known" else {})
    values = StoredValues(GraphRecord(None, nodes, places, {}, [], buffers, {}, {}, {}))
    product = (Value("mul", 0), mul) if where == "known" else (None, None, NO_PLACE)
    written = [Written(0, None, "buf0", "buf0", *product), Written(1, None, "buf1", "buf1", Value("sub", 0), sub)]
    known = [one for one in written if one.value is not None]
    fragment = fragment_of(values, [one.value for one in known if one.value], {Value("arg0", 0)}.__contains__)
    x = torch.randn(64, generator=torch.Generator().manual_seed(0)).bfloat16()
    stores = (x.float() * 3).bfloat16()
    result = (stores.float() - x.float() * 2.9).bfloat16()
    kernels = [
        LaunchPlan(0, "cpp_fused_0", [Operand("arg0", "in", "arg0")], "stored", False, ["buf0", "buf1"], written)
    ]
    leaves = {Value("arg0", 0): (0, given)}
    if where == "another launch":
        operands = [Operand("arg0", "other", "arg0"), Operand("buf0", "in", "buf0")]
        written[1].position, kernels[0].after, kernels[0].written = 0, ["buf0"], written[:1]
        kernels.append(LaunchPlan(1, "cpp_fused_1", operands, "stored", False, ["buf1"], written[1:]))
    kernels[-1].groups = [Group(fragment, known, leaves, is_direct=len(kernels) == 1)]
    judge = CallJudge(FunctionPlan(values, inputs=["arg0"], launches=dict(enumerate(kernels))), lambda kernel: True)
    after = [[stores, result]] if len(kernels) == 1 else [[stores], [result]]
    for site, (before, made) in enumerate(zip(([x], [x, stores]), after, strict=False)):
        judge.before(site, before)
        judge.after(site, made)
    assert [one.word for one in judge.result.verdicts if one.variable == "buf1"] == ["ok"]
