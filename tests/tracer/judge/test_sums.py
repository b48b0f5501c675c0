"""Sums over the bits of tensors, by which the judge sees that a buffer has changed."""

from __future__ import annotations

import pytest
import torch

from stepscope.tracer.judge.sums import CPU_CHUNK, Sums

DTYPES = (torch.bool, torch.uint8, torch.bfloat16, torch.float32, torch.int64, torch.float64, torch.complex64)


def of(tensor: torch.Tensor) -> int:
    return int(Sums().of([tensor])[0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_two_elements_that_change_places_change_the_sum(dtype: torch.dtype) -> None:
    before = torch.tensor([0, 1, 1, 0, 1, 0, 0], dtype=dtype)
    after = before[[0, 1, 3, 2, 4, 5, 6]]
    assert of(before) != of(after)
    assert of(before) == of(before.clone())


def test_one_changed_sign_changes_the_sum() -> None:
    before = torch.ones(9)
    for place in range(9):
        after = before.clone()
        after[place] *= -1
        assert of(before) != of(after)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bfloat16])
def test_strides_do_not_hinder_the_sum(dtype: torch.dtype) -> None:
    whole = torch.arange(75).reshape(3, 25).to(dtype)
    for part in (whole[:, 0], whole[:, 3:8], whole[1:2, 5].expand(4), whole[0, 1:4], whole[:0]):
        assert of(part) == of(part.clone())


def test_chunks_that_change_places_change_the_sum() -> None:
    tensor = torch.arange(3 * CPU_CHUNK + 5)
    swapped = torch.cat([tensor[CPU_CHUNK : 2 * CPU_CHUNK], tensor[:CPU_CHUNK], tensor[2 * CPU_CHUNK :]])
    first, second, third = Sums().of([tensor, swapped, tensor.clone()])
    assert first == third != second
