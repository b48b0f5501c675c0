"""The sums by which the judge sees that a buffer has changed."""

from __future__ import annotations

import pytest
import torch

from stepscope.tracer.judge.integrity import bit_sum

DTYPES = (torch.bool, torch.uint8, torch.bfloat16, torch.float32, torch.int64, torch.float64, torch.complex64)


@pytest.mark.parametrize("dtype", DTYPES)
def test_two_elements_that_change_places_change_the_sum(dtype: torch.dtype) -> None:
    before = torch.tensor([0, 1, 1, 0, 1, 0, 0], dtype=dtype)
    after = before[[0, 1, 3, 2, 4, 5, 6]]
    assert bit_sum(before) != bit_sum(after)
    assert bit_sum(before) == bit_sum(before.clone())


def test_one_changed_sign_changes_the_sum() -> None:
    before = torch.ones(9)
    for place in range(9):
        after = before.clone()
        after[place] *= -1
        assert bit_sum(before) != bit_sum(after)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bfloat16])
def test_strides_do_not_hinder_the_sum(dtype: torch.dtype) -> None:
    whole = torch.arange(75).reshape(3, 25).to(dtype)
    for part in (whole[:, 0], whole[:, 3:8], whole[1:2, 5].expand(4), whole[0, 1:4], whole[:0]):
        assert bit_sum(part) == bit_sum(part.clone())
