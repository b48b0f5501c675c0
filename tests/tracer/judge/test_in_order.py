"""Sums, means and variances as plain loops compute them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from stepscope.tracer.judge.in_order import CHUNK, in_order, is_loop


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize(
    ("target", "args", "kwargs"),
    [
        ("sum.default", (), {}),
        ("sum.dim_IntList", ([0, -1], True), {}),
        ("sum.dim_IntList", ([1],), {"dtype": torch.float64}),
        ("mean.dim", ([2],), {}),
        ("var.correction", ([0],), {"correction": 0, "keepdim": True}),
        ("var_mean.correction", ([0, 2],), {}),
        ("var_mean.correction", ([0, 2],), {"correction": 200}),
    ],
)
def test_they_have_the_form_and_nearly_the_value_of_eager_code(
    target: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    packet, _, overload = target.partition(".")
    tensor = torch.rand(3, 5, 7)
    eager = getattr(getattr(torch.ops.aten, packet), overload)(tensor, *args, **kwargs)
    found = in_order(f"op:aten.{target}", (tensor, *args), kwargs, torch.float32)
    torch.testing.assert_close(found, eager, rtol=1e-4, atol=1e-6)


def test_a_sum_is_that_of_a_loop_to_the_bit_and_begins_anew_after_a_chunk() -> None:
    tensor = torch.full((2 * CHUNK + 5,), 0.1)
    sums = []
    for count in (CHUNK, 5):
        total = np.float32(0)
        for _ in range(count):
            total += np.float32(0.1)
        sums.append(total)
    assert float(in_order("op:aten.sum.default", (tensor[:CHUNK],), {}, torch.float32)) == sums[0]
    assert float(in_order("op:aten.sum.default", (tensor,), {}, torch.float32)) == sums[1] + np.float32(2) * sums[0]


def test_low_precision_is_summed_in_float32_and_integers_are_left_alone() -> None:
    found = in_order("op:aten.sum.default", (torch.ones(1000, dtype=torch.bfloat16),), {}, torch.float32)
    assert (found.dtype, float(found)) == (torch.bfloat16, 1000)
    assert in_order("op:aten.sum.default", (torch.ones(4, dtype=torch.int64),), {}, torch.float32) is None
    assert in_order("op:aten.sum.default", (torch.ones(()),), {}, torch.float32) is None
    assert [is_loop(f"op:aten.{one}") for one in ("mean.dim", "erf.default", "amax.default", "summary.default")] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(("name", "most"), [("expm1", 1.2e-7), ("erf", 4e-7)])
def test_small_results_of_a_formula_have_few_right_digits(name: str, most: float) -> None:
    x = torch.linspace(-3, 3, 3001)
    exact = getattr(torch, name)(x.double())
    found = in_order(f"op:aten.{name}.default", (x,), {}, torch.float32)
    assert (found - exact).abs().max() < most * max(1.0, float(exact.max()))
    small = torch.full((8,), 1e-6)
    lost = in_order(f"op:aten.{name}.default", (small.double(),), {}, torch.float32)
    assert lost.dtype == torch.float64
    assert (lost - getattr(torch, name)(small)).abs().max() > 1e-9
    assert in_order(f"op:aten.{name}.default", (x.double(),), {}, torch.float64) is None
