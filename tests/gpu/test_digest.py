"""Digests of tensors on a CUDA device, against sums of numpy and against those of the same bits on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("default"),
]
DTYPES = [
    torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32, torch.uint8,
    torch.float8_e5m2,
]  # fmt: skip


def keys(count: int, first: int, shift: int, second: int, shift2: int) -> Any:
    x = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(first) & np.uint64(0xFFFFFFFF)
    x = (x ^ x >> np.uint64(shift)) * np.uint64(second) & np.uint64(0xFFFFFFFF)
    return (x ^ x >> np.uint64(shift2)) | np.uint64(1)


def expected(tensor: Tensor) -> int:
    """The digest of a tensor in row-major order."""
    data = np.frombuffer(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy(), np.uint8)
    units = -(-len(data) // 8192)
    padded = np.zeros(units * 8192, np.uint8)
    padded[: len(data)] = data
    words = padded.view("<u4").astype(np.uint64).reshape(units, 2048)
    of_units = (words * keys(2048, 0x9E3779B1, 15, 0x85EBCA77, 13)).sum(1, dtype=np.uint64)
    total = int((of_units * keys(units, 0xC2B2AE3D, 16, 0x27D4EB2F, 15)).sum(dtype=np.uint64))
    return (total + (len(data) + 1) * 0x9E3779B97F4A7C15) % 2**64


def digests(*tensors: Tensor) -> list[int]:
    from stepscope.tracer.runtime.stats.cuda import CudaReader

    return [int(number) for number in CudaReader(tensors)(tensors).wait()["digest"]]


def on_the_cpu(tensor: Tensor) -> int:
    """The digest of a view of the same bytes in the same order in memory on the CPU."""
    from stepscope.tracer.runtime.stats.cpu import CpuReader

    host = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    host.copy_(tensor)
    return int(CpuReader([host], 1 << 40)([host]).wait()["digest"][0])


def random(dtype: torch.dtype, n: int) -> Tensor:
    """Any bits, NaN among them, from an address that is a multiple of 16 bytes."""
    bits = torch.randint(0, 256, (n * dtype.itemsize,), dtype=torch.uint8, generator=torch.Generator().manual_seed(n))
    return bits.view(dtype).cuda()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_width_and_length(dtype: torch.dtype) -> None:
    tensors = [random(dtype, n) for n in (1, 3, 2049, 8195, 300_001, 3_000_003)]
    finite = [torch.randn(n, device="cuda").to(dtype) for n in (5, 70_000, 2_000_000)]
    for tensor, found in zip([*tensors, *finite], digests(*tensors, *finite), strict=True):
        assert found == expected(tensor), tensor.numel()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_views(dtype: torch.dtype) -> None:
    joint = torch.randn(2, 256, 3, 8, 64, device="cuda").to(dtype)
    q, k, v = joint.permute(2, 0, 3, 1, 4).unbind(0)
    base = torch.randn(64, 96, 128, device="cuda").to(dtype)
    plain = [base, base[3], base[:, 5:90], base[:, :, ::2], base[:, :, 32:96]]
    for view, found in zip(plain, digests(*plain), strict=True):
        assert found == expected(view), view.stride()
    others = [q, k, v, base.transpose(0, 1), base.permute(2, 0, 1), base.view(512, -1).t()]
    for view, found in zip(others, digests(*others), strict=True):
        assert found == on_the_cpu(view), view.stride()
        assert found != expected(view)


def test_what_has_no_digest() -> None:
    base = torch.randn(100_001, device="cuda")
    assert digests(base[1:], torch.randn(5, 1, device="cuda").expand(5, 7)) == [0, 0]
    assert digests(base[1:100])[0] == expected(base[1:100])  # no whole unit is read


def test_each_bit_and_each_place_count() -> None:
    base = torch.randn(70_000, device="cuda").bfloat16()
    seen = {digests(base)[0]}
    for place in (0, 1, 8, 4095, 4096, 65_535, 69_999):
        for bit in (0, 7, 14):
            other = base.clone()
            other.view(torch.int16)[place] ^= 1 << bit
            seen.add(digests(other)[0])
    seen |= set(digests(base.flip(0), base.roll(8), base.roll(4096), base.roll(1)))
    assert len(seen) == 1 + 21 + 4


def test_two_readings_agree() -> None:
    x = torch.randn(1 << 22, device="cuda")
    assert len({digests(x)[0] for _ in range(20)} | {on_the_cpu(x)}) == 1
