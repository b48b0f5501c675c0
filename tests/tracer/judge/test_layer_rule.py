"""The rule that tells rounding from a wrong result."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from stepscope.tracer.inductor.float64_mode import WIDER, Float64Mode
from stepscope.tracer.judge.layer_rule import Judged, judge

Function = Callable[[Tensor], Tensor]


def references(function: Function, value: Tensor, eps: float) -> tuple[Tensor, list[Tensor]]:
    exact, *others = [
        _under(mode, function, value)
        for mode in (Float64Mode(), Float64Mode("random", eps, 1), Float64Mode("up", eps), Float64Mode("down", eps))
    ]
    return exact, others


def _under(mode: Float64Mode, function: Function, value: Tensor) -> Tensor:
    (wide,) = mode.moved_inputs([value.to(WIDER[value.dtype])])
    with mode:
        return function(wide)


def judged(function: Function, value: Tensor, compiled: Tensor) -> Judged:
    eps = torch.finfo(value.dtype).eps
    return judge(compiled, function(value), *references(function, value, eps), eps)


def attention(value: Tensor) -> Tensor:
    return torch.softmax(value @ value.T / 4, -1) @ value


def inputs(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(32, 16, generator=torch.Generator().manual_seed(3)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_another_order_of_operations_is_rounding(dtype: torch.dtype) -> None:
    value = inputs(dtype)
    turned = value.float().flip(-1)
    weights = torch.softmax(turned @ turned.T / 4, -1)
    compiled = (weights.flip(-1) @ value.float().flip(0)).to(dtype)
    assert not torch.equal(compiled, attention(value))
    assert judged(attention, value, compiled).verdict in ("agrees", "eager_is_off")


@pytest.mark.parametrize(("dtype", "factor"), [(torch.float32, 1 + 2**-12), (torch.bfloat16, 1.125)])
def test_a_scaled_row_is_wrong(dtype: torch.dtype, factor: float) -> None:
    compiled = attention(inputs(dtype))
    compiled[7] *= factor
    found = judged(attention, inputs(dtype), compiled)
    assert found.verdict == "differs"
    assert found.index[0] == 7
    assert 0 < found.wrong <= 16
    assert found.compiled == compiled[found.index].item()
    assert found.eager == attention(inputs(dtype))[found.index].item()


def test_a_small_error_of_all_elements_is_wrong() -> None:
    assert judged(attention, inputs(), attention(inputs()) * (1 + 2**-16)).verdict == "differs"


def test_the_nearer_one_to_float64_is_right() -> None:
    """The sum of many small numbers in float16, which eager mode rounds after every step."""
    value = torch.full((4096,), 0.01, dtype=torch.float16)

    def added(x: Tensor) -> Tensor:
        return x.view(64, 64).cumsum(1)[:, -1].cumsum(0)[-1] / 64

    exact = references(added, value, torch.finfo(value.dtype).eps)[0]
    found = judged(lambda x: added(x) if x.dtype == torch.float64 else added(x) * 1.5, value, exact.half())
    assert found.verdict == "eager_is_off"
    assert found.eager_error is not None
    assert found.compiled_error is not None
    assert found.eager_error > 100 * found.compiled_error


def test_a_new_nan_is_wrong_and_a_removed_overflow_is_not() -> None:
    value = torch.tensor([1.0, 2.0])
    assert judged(torch.exp, value, torch.tensor([torch.nan, 7.389056])).verdict == "differs"
    large = torch.tensor([300.0, 1.0], dtype=torch.float16)
    found = judged(lambda x: x * x / x, large, large.clone())
    assert found.verdict == "eager_is_off"
    assert found.eager == torch.inf


def test_a_nan_that_float64_has_too_may_not_vanish() -> None:
    value = torch.tensor([-1.0, 1.0])
    assert judged(torch.log, value, torch.tensor([0.0, 0.0])).verdict == "differs"


def test_a_decision_by_rounding_is_not_wrong() -> None:
    """The largest element is decided by one ulp."""
    value = torch.tensor([[1.7, 1.7000001, 0.3]])

    def largest(x: Tensor) -> Tensor:
        return (x * 1.1 + 0.3).mul(0.7).sub(0.1).argmax(-1)

    assert judged(largest, value, 1 - largest(value)).verdict == "agrees"
    assert judged(largest, torch.tensor([[1.0, 2.0, 0.3]]), torch.tensor([2])).verdict == "differs"


def test_equal_bits_need_no_reference() -> None:
    value = torch.tensor([torch.nan, 1.0])
    assert judge(value, value.clone(), value, [], 1e-7).verdict == "equal"
