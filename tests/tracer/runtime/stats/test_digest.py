"""Digests of each reader against sums of Python integers: widths, lengths, views, threads, and what must differ."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch import Tensor

from stepscope.tracer.runtime.stats import Reader
from stepscope.tracer.runtime.stats.cpu import BIG, CpuReader
from stepscope.tracer.runtime.stats.torch_ops import TorchReader

ALL = 1 << 40
READERS: dict[str, Callable[[list[Tensor], int], Reader]] = {"compiled": CpuReader, "torch": TorchReader}


def key(number: int, first: int, shift: int, second: int, shift2: int) -> int:
    x = (number + 1) * first % 2**32
    x = (x ^ x >> shift) * second % 2**32
    return (x ^ x >> shift2) | 1


def expected(data: bytes) -> int:
    """The digest of a tensor in row-major order, word by word."""
    total = (len(data) + 1) * 0x9E3779B97F4A7C15
    for number in range(-(-len(data) // 4)):
        word = int.from_bytes(data[4 * number : 4 * number + 4], "little")
        unit, place = divmod(number, 2048)
        total += word * key(unit, 0xC2B2AE3D, 16, 0x27D4EB2F, 15) * key(place, 0x9E3779B1, 15, 0x85EBCA77, 13)
    return total % 2**64 or 1


def digests(tensor: Tensor) -> list[int]:
    """The digest by each reader."""
    return [int(make([tensor], ALL)([tensor]).wait()["digest"][0]) for make in READERS.values()]


def digest(tensor: Tensor) -> int:
    found = set(digests(tensor))
    assert len(found) == 1
    return found.pop()


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([torch.uint8, torch.int16, torch.float32, torch.float64]))
def test_any_bits(data: bytes, dtype: torch.dtype) -> None:
    data = data[: len(data) // dtype.itemsize * dtype.itemsize]
    tensor = torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)
    assert digests(tensor) == [expected(data)] * 2


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float8_e5m2, torch.float64, torch.uint16, torch.bool], ids=str
)
@pytest.mark.parametrize("numel", [2047, 4096, 4097, 8193, 20_001])
def test_each_width_over_several_blocks_and_units(dtype: torch.dtype, numel: int) -> None:
    generator = torch.Generator().manual_seed(numel)
    high = 2 if dtype is torch.bool else 256
    raw = torch.randint(0, high, (numel * dtype.itemsize,), generator=generator, dtype=torch.uint8)
    assert digests(raw.view(dtype)) == [expected(raw.numpy().tobytes())] * 2


@settings(max_examples=40, deadline=None)
@given(
    arrays.arrays(np.int32, st.integers(2, 40), elements=st.integers(-3, 3)),
    st.data(),
)
def test_a_tensor_with_its_elements_in_another_order_differs(numbers: Any, data: st.DataObject) -> None:
    other = numbers[data.draw(st.permutations(range(len(numbers))))]
    equal = digest(torch.from_numpy(numbers)) == digest(torch.from_numpy(other.copy()))
    assert equal == (numbers == other).all()


def test_each_bit_counts() -> None:
    zeros = torch.zeros(3000)
    seen = {digest(zeros)}
    for place in (0, 1, 2047, 2048, 2999):
        for bit in range(32):
            other = zeros.clone()
            other.view(torch.int32)[place] = 1 << bit if bit < 31 else -(2**31)
            seen.add(digest(other))
    assert len(seen) == 1 + 5 * 32
    assert digest(torch.tensor([0.0, -0.0])) != digest(torch.tensor([-0.0, 0.0]))


def test_nan_payloads_count() -> None:
    quiet = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert quiet.isnan().all()
    assert digest(quiet[:1]) != digest(quiet[1:])


def test_the_number_of_elements_counts() -> None:
    found = [digest(torch.zeros(n)) for n in (0, 1, 2, 2048, 4096)]
    assert len(set(found)) == 5


def test_views_in_row_major_order_agree_with_their_copies() -> None:
    base = torch.randn(30, 40, 50)
    for view in (base[:, 3:29], base[::2, :, ::3], base[4], base[:, :, 7], base.as_strided((40, 50), (60, 1))):
        assert digest(view) == digest(view.contiguous()) == expected(view.contiguous().numpy().tobytes())


def test_another_order_of_dimensions_differs_from_row_major_order() -> None:
    square = torch.randn(60, 60)
    by_columns = square.t().contiguous().t()  # the same elements as `square`, in another order in memory
    assert len({digest(one) for one in (square, square.t(), by_columns, by_columns.t())}) == 4
    cube = torch.randn(8, 8, 8)
    assert len({digest(cube.permute(order)) for order in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 1, 0))}) == 4


def test_expanded_and_freed_tensors_have_no_digest() -> None:
    assert digests(torch.randn(5, 1).expand(5, 7)) == [0, 0]
    tensor = torch.ones(100)
    made = [make([tensor], ALL) for make in READERS.values()]
    tensor.untyped_storage().resize_(0)
    assert [int(reader([tensor]).wait()["digest"][0]) for reader in made] == [0, 0]


def test_samples_have_the_digest_of_what_was_read() -> None:
    tensor = torch.randn(5000)
    for make in READERS.values():
        (row,) = make([tensor], 4 * 500)([tensor]).wait()
        assert row["digest"] == expected(tensor[::10].contiguous().numpy().tobytes())


@pytest.mark.parametrize("transposed", [False, True])
def test_the_number_of_threads_does_not_matter(transposed: bool) -> None:
    tensor = torch.randn(2, BIG + 777)
    tensor = tensor.t() if transposed else tensor
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append(digests(tensor)[0])
    finally:
        torch.set_num_threads(before)
    found.append(digests(tensor)[1])
    assert all(a == b for a, b in pairwise(found))
