"""Each reader against the oracle: every dtype, special values, layouts, samples, threads."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from stepscope.tracer.runtime.stats import ROW, Reader
from stepscope.tracer.runtime.stats.cpu import BIG, SOURCE, CpuReader
from stepscope.tracer.runtime.stats.dtypes import KINDS, NAMES, tables
from stepscope.tracer.runtime.stats.torch_ops import TorchReader
from tests.tracer.runtime.stats.oracle import check, row_of

ALL = 1 << 40
READERS: dict[str, Callable[[list[Tensor], int], Reader]] = {"compiled": CpuReader, "torch": TorchReader}
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
SIGNED = [torch.int8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint8, torch.uint16, torch.uint32, torch.uint64]


@pytest.fixture(params=READERS)
def reader(request: pytest.FixtureRequest) -> Callable[[list[Tensor], int], Reader]:
    return READERS[request.param]


def test_rows_of_the_compiled_reader_have_the_fields_of_the_vocabulary() -> None:
    found = re.search(r"struct Row \{(.*?)\};", SOURCE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    fields = [name for line in re.findall(r"(?:int64_t|double) ([^;]+);", found[1]) for name in line.split(", ")]
    assert tuple(fields) == ROW.names


def read(make: Callable[[list[Tensor], int], Reader], tensor: Tensor, most_bytes: int = ALL) -> Any:
    rows = make([tensor], most_bytes)([tensor]).wait()
    assert rows.dtype == ROW
    assert rows.shape == (1,)
    return rows[0]


def random(dtype: torch.dtype, *shape: int, seed: int = 0) -> Tensor:
    """Every bit pattern may come up for small types; for others normal numbers over some magnitudes."""
    generator = torch.Generator().manual_seed(seed)
    if dtype is torch.bool:
        return torch.rand(shape, generator=generator) < 0.3
    if not dtype.is_floating_point:
        bits = torch.randint(-(2**63), 2**63 - 1, shape, generator=generator)
        size = 8 * dtype.itemsize
        narrow = bits >> (64 - size)
        if dtype in UNSIGNED:
            return torch.from_numpy(narrow.numpy().astype(f"u{dtype.itemsize}"))
        return narrow.to(dtype)
    if dtype.itemsize == 1:
        return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8).view(dtype)
    return (torch.randn(shape, generator=generator, dtype=torch.float64) * 3).to(dtype)


@pytest.mark.parametrize("dtype", [*FLOATS, *FLOAT8, *SIGNED, *UNSIGNED, torch.bool], ids=str)
@pytest.mark.parametrize("numel", [1, 2, 31, 33, 4200])
def test_every_dtype(reader: Any, dtype: torch.dtype, numel: int) -> None:
    tensor = random(dtype, numel)
    check(read(reader, tensor), row_of(tensor))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("at", [0, 17, 4095, 9000])
def test_special_values_anywhere(reader: Any, dtype: torch.dtype, at: int) -> None:
    tensor = random(dtype, 9001)
    tensor[at] = math.nan
    tensor[5000:5003] = torch.tensor([math.inf, -math.inf, math.nan])
    tensor[7000:7040] = 0.0
    tensor[7001] = -0.0
    tensor[7040:7050] = torch.finfo(dtype).smallest_normal / 4
    tensor[7050] = -torch.finfo(dtype).smallest_normal
    check(read(reader, tensor), row_of(tensor))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("share", [0.001, 0.5, 0.999, 1.0])
def test_what_is_not_finite_among_the_rest(reader: Any, dtype: torch.dtype, share: float) -> None:
    """In some blocks and not in others, around a mean that moves, beside zeros, subnormals and the largest numbers."""
    tensor = random(dtype, 30000) + torch.arange(30000).div(4096, rounding_mode="floor").to(dtype) * 50
    generator = torch.Generator().manual_seed(1)
    special = torch.tensor([math.nan, -math.nan, math.inf, -math.inf, 0.0, torch.finfo(dtype).tiny / 4], dtype=dtype)
    chosen = torch.rand(30000, generator=generator) < share
    chosen[8192:12288] = False
    chosen[20000:20480] = False
    picks = torch.randint(0, 6 if share < 1 else 4, (30000,), generator=generator)
    tensor = torch.where(chosen, special[picks], tensor)
    tensor[29999] = torch.finfo(dtype).max if dtype is torch.float16 else 1e4
    check(read(reader, tensor), row_of(tensor))
    check(read(reader, tensor[12288:20000]), row_of(tensor[12288:20000]))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("value", [math.nan, -math.inf, -0.0, 0.1])
def test_constant_tensors(reader: Any, dtype: torch.dtype, value: float) -> None:
    tensor = torch.full((4200,), value, dtype=dtype)
    check(read(reader, tensor), row_of(tensor))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_every_bit_pattern_of_16_bits(reader: Any, dtype: torch.dtype) -> None:
    tensor = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(dtype)
    check(read(reader, tensor), row_of(tensor))
    finite = tensor[torch.isfinite(tensor)]
    check(read(reader, finite), row_of(finite))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_near_overflow_is_counted_from_its_edge(reader: Any, dtype: torch.dtype) -> None:
    edge = torch.finfo(dtype).max / 2
    edge = 2.0 ** math.floor(math.log2(edge))
    tensor = torch.ones(4096, dtype=dtype)
    tensor[3:6] = torch.tensor([edge, -edge, torch.finfo(dtype).max], dtype=dtype)
    tensor[6] = torch.nextafter(tensor[3], torch.zeros((), dtype=dtype))
    assert read(reader, tensor)["near_overflow"] == 3


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.full((3,), 1e300, dtype=torch.float64) * torch.tensor([1, -1, 1.5], dtype=torch.float64),
        lambda: torch.randn(5000, dtype=torch.float64) * 1e307,
        lambda: torch.randn(5000, dtype=torch.float64) * 1e-300,
        lambda: torch.cat([torch.randn(4096, dtype=torch.float64), torch.full((50,), 1.7e308, dtype=torch.float64)]),
        lambda: torch.tensor([5e-324, 1e-323, 0.0], dtype=torch.float64),
        lambda: torch.randn(5000) * 1e37,
        lambda: torch.randn(5000) * 1e-40,
        lambda: torch.randn(5000) * 1e-25,
    ],
)
def test_extreme_magnitudes_keep_their_range(reader: Any, make: Callable[[], Tensor]) -> None:
    torch.manual_seed(0)
    tensor = make()
    check(read(reader, tensor), row_of(tensor))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mean", [1e3, 1e6, -1e6, 3e7])
def test_small_variance_around_a_large_mean(reader: Any, dtype: torch.dtype, mean: float) -> None:
    torch.manual_seed(0)
    tensor = (torch.randn(20000, dtype=torch.float64) + mean).to(dtype)
    tensor[10000:] -= mean  # the pivot has to move again
    check(read(reader, tensor[:10000]), row_of(tensor[:10000]))
    check(read(reader, tensor), row_of(tensor))


def test_an_outlier_at_the_head_spoils_nothing(reader: Any) -> None:
    torch.manual_seed(0)
    tensor = torch.randn(12000)
    tensor[0] = 1e30
    check(read(reader, tensor), row_of(tensor))


def test_integers_stay_exact(reader: Any) -> None:
    row = read(reader, torch.tensor([2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)]))
    assert (row["exact_min"], row["exact_max"]) == (-(2**63), 2**63 - 1)
    assert read(reader, torch.tensor([2**53 + 1]))["exact_max"] == 2**53 + 1
    near = torch.tensor([2**60, 2**60 + 1, 2**60 + 2, 2**60 + 3])
    check(read(reader, near), row_of(near))
    unsigned = torch.from_numpy(np.array([2**64 - 1, 2**63, 5], "u8"))
    row = read(reader, unsigned)
    assert (row["exact_min"].item(), row["exact_max"].item() % 2**64) == (5, 2**64 - 1)


def layouts() -> Iterator[Any]:
    yield "transposed", lambda t: t.reshape(60, 70).t()
    yield "permuted", lambda t: t.reshape(6, 10, 70).permute(2, 0, 1)
    yield "rows cut", lambda t: t.reshape(60, 70)[:, 3:29]
    yield "columns", lambda t: t.reshape(60, 70)[::2, ::3]
    yield "column", lambda t: t.reshape(60, 70)[:, 4]
    yield "expanded", lambda t: t[:50].reshape(50, 1).expand(50, 40)
    yield "expanded outside", lambda t: t[:600].reshape(20, 30).expand(7, 20, 30)
    yield "expanded inside", lambda t: t[:50].reshape(5, 1, 10).expand(5, 9, 10)
    yield "expanded scalar", lambda t: t[11].expand(300, 20)
    yield "overlapping", lambda t: t.as_strided((40, 50), (3, 2))
    yield "0-d", lambda t: t[17]
    yield "empty", lambda t: t[:0].reshape(0, 5)
    yield "ones", lambda t: t[:40].reshape(1, 40, 1, 1)


@pytest.mark.parametrize(("name", "view"), list(layouts()))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int16, torch.float8_e5m2], ids=str)
def test_layouts(reader: Any, dtype: torch.dtype, name: str, view: Callable[[Tensor], Tensor]) -> None:
    tensor = random(dtype, 4200)
    if dtype.is_floating_point and dtype.itemsize > 1:
        tensor[torch.tensor([11, 17, 40, 600, 3000])] = math.nan
    check(read(reader, view(tensor)), row_of(view(tensor)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize("most_elements", [1, 7, 1000, 4199])
@pytest.mark.parametrize(
    "view", [lambda t: t, lambda t: t.reshape(60, 70).t(), lambda t: t.reshape(10, 1, 420).expand(10, 3, 420)]
)
def test_samples_are_evenly_spaced(reader: Any, dtype: torch.dtype, most_elements: int, view: Any) -> None:
    tensor = random(dtype, 4200)
    if dtype is torch.float32:
        tensor[2800] = tensor[14] = math.inf
    tensor = view(tensor)
    made = reader([tensor], most_elements * dtype.itemsize)
    step = math.ceil(tensor.numel() / most_elements)
    assert made.looked_at == [len(range(0, tensor.numel(), step))]
    check(made([tensor]).wait()[0], row_of(tensor, step))


def test_tables_agree_with_torch() -> None:
    bits = torch.arange(256, dtype=torch.uint8)
    for name, kind in NAMES.items():
        dtype = getattr(torch, name)
        if kind.family == "pattern" and kind.values == 1:
            np.testing.assert_array_equal(tables()[kind.table]["value"], bits.view(dtype).float().double().numpy())
    fours = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    np.testing.assert_array_equal(tables()[5]["value"][:16], [*fours, *(-v for v in fours)])


def test_packed_float4_counts_both_values(reader: Any) -> None:
    tensor = torch.tensor([[0x10, 0xF7], [0x00, 0x22]], dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    made = reader([tensor], ALL)
    row = made([tensor]).wait()[0]
    numbers = [0, 0.5, 6, -6, 0, 0, 1, 1]
    assert made.looked_at == [8]
    assert (row["zero"], row["subnormal"], row["min"], row["max"]) == (3, 1, -6, 6)
    assert np.isclose(row["mean"], np.mean(numbers))
    assert np.isclose(row["std"], np.std(numbers, ddof=1))


def test_float8_e8m0(reader: Any) -> None:
    row = read(reader, torch.tensor([127, 128, 255, 254, 253, 0], dtype=torch.uint8).view(torch.float8_e8m0fnu))
    assert (row["nan"], row["near_overflow"], row["first_bad"], row["max"], row["subnormal"]) == (1, 2, 2, 2.0**127, 0)
    assert row["min"] == 2.0**-127


@pytest.mark.parametrize("dtype", [*FLOATS, torch.float8_e5m2, torch.int64, torch.uint64, torch.uint8], ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_threads_agree_with_one(dtype: torch.dtype, transposed: bool) -> None:
    tensor = random(dtype, 2 * BIG + 12345 * 2).reshape(2, -1)
    if dtype in FLOATS:
        tensor[1, 7:9] = math.inf
    tensor = tensor.t() if transposed else tensor
    before = torch.get_num_threads()
    rows = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            rows.append(read(CpuReader, tensor))
    finally:
        torch.set_num_threads(before)
    for row in rows[1:]:
        assert list(row.tolist()[:9]) == list(rows[0].tolist()[:9])
        for field in ROW.names or ():
            assert np.isclose(row[field], rows[0][field], rtol=1e-6, atol=1e-6, equal_nan=True), field
    check_torch = read(TorchReader, tensor)
    for field in ("nan", "positive_infinity", "zero", "subnormal", "first_bad", "exact_min", "exact_max", "min", "max"):
        assert check_torch[field] == rows[0][field] or check_torch[field] != check_torch[field]


def test_callers_on_many_threads_do_not_mix() -> None:
    made = CpuReader([torch.empty(3000)], ALL)
    tensors = [torch.full((3000,), float(i)) for i in range(64)]
    with ThreadPoolExecutor(8) as pool:
        blocks = list(pool.map(lambda t: made([t]), tensors * 8))
    assert [b.wait()[0]["mean"] for b in blocks] == [float(i) for i in range(64)] * 8


def test_several_tensors_of_one_reader(reader: Any) -> None:
    tensors = [random(dtype, 40 + i) for i, dtype in enumerate(KINDS) if KINDS[dtype].values == 1]
    tensors = [t for t in tensors if t.dtype is not torch.float8_e8m0fnu]
    rows = reader(tensors, ALL)(tensors).wait()
    for tensor, row in zip(tensors, rows, strict=True):
        check(row, row_of(tensor))


def test_freed_memory_reads_as_nothing(reader: Any) -> None:
    tensor = torch.ones(100)
    made = reader([tensor], ALL)
    tensor.untyped_storage().resize_(0)
    row = made([tensor]).wait()[0]
    assert row["zero"] == 0
    assert np.isnan(row["mean"])


def test_flushed_subnormals_still_count() -> None:
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush subnormals")
    try:
        tensor = torch.tensor([1] * 100, dtype=torch.int32).view(torch.float32)
        row = read(CpuReader, tensor)
        assert (row["subnormal"], row["zero"]) == (100, 0)
        assert (torch.tensor([1e-30]) * 1e-10).item() == 0  # the thread flushes as before
    finally:
        torch.set_flush_denormal(False)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(width=32, allow_subnormal=True), max_size=80), st.sampled_from(sorted(READERS)))
def test_any_float32(numbers: list[float], name: str) -> None:
    tensor = torch.from_numpy(np.array(numbers, np.float32))
    check(read(READERS[name], tensor), row_of(tensor))
