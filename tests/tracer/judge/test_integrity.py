"""The sums by which the judge sees that a buffer has changed."""

from __future__ import annotations

import pytest
import torch

from stepscope.tracer.judge.integrity import Change, Integrity, bit_sum

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


def test_two_buffers_in_one_memory_are_one_change() -> None:
    found, memory = Integrity(), torch.ones(4)

    def launched(launch: int, buffer: str) -> None:
        memory.fill_(launch + 2)
        found.wrote_to(memory, launch)
        found.written(buffer, memory, launch)

    launched(0, "buf0")
    launched(1, "buf1")
    found.look(2, "buf0", "buf0", memory)
    launched(2, "buf2")
    found.look(None, "buf1", "buf1", memory)
    assert list(found.changes()) == [(2, Change("buf0", "buf0", 0, 1))]
