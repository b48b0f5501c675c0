"""The rule of the judge, on tensors whose errors are known."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan

import pytest
import torch
from torch import Tensor

from stepscope.tracer.judge.rule import DECIDED, Comparison, Moved, compare, equal, near, undecided

EPS = 2.0**-23


def none(count: int) -> Sequence[Tensor]:
    del count
    return []


def values(size: int = 4096, seed: int = 0) -> Tensor:
    return torch.randn(8, size // 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def verdict(compiled: Tensor, eager: Tensor, double: Tensor, moved: Moved = none) -> Comparison:
    return compare(compiled, eager, double, moved, torch.finfo(compiled.dtype).eps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rounding_is_no_error(dtype: torch.dtype) -> None:
    exact = values()
    rounded = exact.to(dtype)
    assert not verdict(rounded, rounded, exact).broken
    neighbour = (rounded.double() * (1 + torch.finfo(dtype).eps * torch.sign(values(seed=1)))).to(dtype)
    assert not verdict(neighbour, rounded, exact).broken


def test_one_wrong_element_is_found_with_its_index() -> None:
    exact = values()
    compiled = exact.float()
    compiled[3, 7] += 1e-5
    found = verdict(compiled, exact.float(), exact)
    assert found.broken == ("element",)
    assert found.index == (3, 7)
    assert found.bad == 1
    assert found.compiled == pytest.approx(float(exact[3, 7]) + 1e-5, abs=1e-6)
    assert found.of_limit > 2


@pytest.mark.parametrize(("dtype", "factor"), [(torch.float32, 1 + 2**-18), (torch.bfloat16, 1 + 2**-7)])
def test_a_wrong_factor_is_found_although_each_element_is_near(dtype: torch.dtype, factor: float) -> None:
    exact = values(1 << 16)
    eager = exact.to(dtype)
    compiled = (eager.double() * factor).to(dtype)
    found = verdict(compiled, eager, exact)
    assert {"mean", "bias"} & set(found.broken)


def test_a_cancellation_is_explained_by_moved_inputs() -> None:
    """The sum of numbers that cancel is off by far more than its own spacing, in compiled and in eager code alike."""
    terms = values(1 << 14) * 1e4
    exact = (terms - terms.mean(-1, keepdim=True)).sum(-1)
    compiled = exact.float() + 0.02
    assert verdict(compiled, exact.float(), exact).broken
    moved = [exact + 0.02 * torch.ones_like(exact)]
    assert not verdict(compiled, exact.float(), exact, lambda _: moved).broken


def test_what_plain_loops_lose_explains_an_error_and_nothing_larger() -> None:
    exact = values(1 << 10)
    looped = (exact * (1 + 40 * EPS)).float()
    for factor, is_wrong in ((1 + 100 * EPS, False), (1 + 2000 * EPS, True)):
        compiled = (exact * factor).float()
        assert verdict(compiled, exact.float(), exact).broken
        found = compare(compiled, exact.float(), exact, none, EPS, lambda: looped)
        assert (bool(found.broken), found.how) == (is_wrong, "in_order")


def test_independent_errors_of_low_precision_leave_a_share_of_the_result() -> None:
    """The result has a spacing finer than the numbers from which it was computed, and few elements."""
    exact = values(64)[:, :1].abs() + 1
    eager = (exact + exact * 2.0**-8 * torch.tensor([1, -1, 1, -1, 1, -1, 1, -1])[:, None]).float()
    compiled = (exact + exact * 2.0**-8 * torch.tensor([1, 1, 1, -1, 1, 1, 1, -1])[:, None]).float()
    assert not compare(compiled, eager, exact, none, 2.0**-7).broken
    assert compare((exact * (1 + 2.0**-5)).float(), eager, exact, none, 2.0**-7).broken


def test_new_nan_and_infinity_are_wrong_and_overflow_is_not() -> None:
    exact = torch.tensor([[1.0, 2.0, 1e6]], dtype=torch.float64)
    eager = exact.half()
    assert not verdict(eager, eager, exact).broken
    broken = eager.clone()
    broken[0, 1] = nan
    found = verdict(broken, eager, exact)
    assert "nonfinite" in found.broken
    assert found.index == (0, 1)
    assert found.of_limit == inf


@pytest.mark.parametrize(("compiled", "eager"), [(inf, nan), (nan, inf), (inf, 65504.0), (65504.0, inf), (nan, nan)])
def test_at_the_edge_of_the_range_any_value_may_be_right(compiled: float, eager: float) -> None:
    exact = torch.tensor([[1.0, 1e5]], dtype=torch.float64)
    c, e = (torch.tensor([[1.0, one]], dtype=torch.float16) for one in (compiled, eager))
    assert not verdict(c, e, exact).broken
    moved = [torch.tensor([[1.0, 1e5]], dtype=torch.float64)]
    assert not verdict(c, e, torch.tensor([[1.0, nan]], dtype=torch.float64), lambda _: moved).broken


@pytest.mark.parametrize(
    ("compiled", "right"), [(nan, inf), (inf, nan), (0.0, inf), (0.0, nan), (-inf, inf), (inf, -inf), (nan, -inf)]
)
def test_another_value_that_is_not_finite_is_wrong(compiled: float, right: float) -> None:
    exact = torch.tensor([[1.0, right, 3.0]], dtype=torch.float64)
    eager = exact.float()
    wrong = torch.tensor([[1.0, compiled, 3.0]])
    found = verdict(wrong, eager, exact)
    assert (found.broken, found.index, found.bad) == (("nonfinite",), (0, 1), 1)
    assert not verdict(eager.clone(), eager, exact).broken
    other = torch.tensor([[1.0, 5.0, 3.0]], dtype=torch.float64)
    assert not verdict(wrong, eager, exact, lambda _: [exact, other]).broken  # rounding decides whether it is finite


def test_a_finite_number_where_the_dtype_overflows_is_wrong() -> None:
    exact = torch.tensor([[1.0, 1e6, 66000.0]], dtype=torch.float64)
    eager = torch.tensor([[1.0, inf, inf]], dtype=torch.float16)
    found = verdict(torch.tensor([[1.0, 0.0, 65504.0]], dtype=torch.float16), eager, exact)
    assert (found.broken, found.index, found.bad) == (("nonfinite",), (0, 1), 1)


def test_eager_overflow_is_a_note_and_no_error() -> None:
    exact = torch.tensor([[0.5, 0.25]], dtype=torch.float64)
    found = verdict(exact.half(), torch.tensor([[nan, 0.25]], dtype=torch.float16), exact)
    assert not found.broken
    assert found.eager_is_off
    assert found.index == (0, 0)


def test_integers_must_agree_where_eager_and_float64_do() -> None:
    eager = torch.tensor([1, 2, 3, 4])
    assert not verdict_of_integers(torch.tensor([1, 2, 3, 5]), eager, torch.tensor([1, 2, 3, 5])).broken
    found = verdict_of_integers(torch.tensor([1, 9, 3, 4]), eager, torch.tensor([1, 2, 3, 5]))
    assert (found.broken, found.index, found.bad) == (("integer",), (1,), 1)


def test_a_decision_that_rounding_moves_is_no_error() -> None:
    eager = torch.tensor([True, True, False])
    compiled = torch.tensor([False, True, True])
    found = compare(compiled, eager, eager, lambda _: [torch.tensor([False, True, False])], EPS)
    assert (found.broken, found.index, found.bad, found.how) == (("integer",), (2,), 1, "moved")
    assert not compare(compiled, eager, eager, lambda _: [compiled], EPS).broken


def verdict_of_integers(compiled: Tensor, eager: Tensor, double: Tensor) -> Comparison:
    return compare(compiled, eager, double, none, 0.0)


def test_nan_equals_nan() -> None:
    assert equal(torch.tensor([nan, 1.0]), torch.tensor([nan, 1.0]))
    assert not equal(torch.tensor([nan, 1.0]), torch.tensor([nan, 2.0]))


@pytest.mark.parametrize("seed", range(4))
def test_what_is_near_is_also_ok_against_float64(seed: int) -> None:
    exact = values(seed=seed)
    eager = (exact * (1 + 3 * EPS * values(seed=seed + 9))).float()
    compiled = (eager.double() * (1 + 0.5 * EPS * values(seed=seed + 5))).float()
    found = near(compiled, eager, EPS)
    assert found is None or not verdict(compiled, eager, exact).broken
    assert near(eager, eager, EPS) is not None
    assert near(eager * (1 + 2**-18), eager, EPS) is None


def test_bfloat16_is_near_by_its_own_spacing() -> None:
    eager = values(seed=1).bfloat16()
    spacing = 2.0**-7
    assert near(eager, eager, spacing) is not None
    assert near((eager.double() * (1 + 4 * spacing)).bfloat16(), eager, spacing) is None


def test_elements_that_jump_when_inputs_are_moved_far_are_undecided() -> None:
    exact = values(64)
    near_by, smooth = exact * (1 + EPS / 2), exact * (1 + DECIDED * EPS / 2)
    far = smooth.clone()
    far[2, 3] += 1.0
    far[4, 5] = nan
    for one, where in ((smooth, []), (far, [[2, 3], [4, 5]])):
        assert undecided(exact, [near_by], [near_by, one], torch.float32).nonzero().tolist() == where
    whole = exact.round()
    assert undecided(whole, [], [whole, far.round().nan_to_num(7)], torch.int64).nonzero().tolist() == where
