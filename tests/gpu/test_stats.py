"""Statistics of tensors on a CUDA device, against float64 on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from stepscope.tracer.runtime.device.replays import Replays

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("default"),
]

FLOATS = {
    torch.float32: (-126, None), torch.bfloat16: (-126, 126), torch.float16: (-14, 14), torch.float64: (-1022, None),
    torch.float8_e4m3fn: (-6, 7), torch.float8_e5m2: (-14, 14), torch.float8_e4m3fnuz: (-7, 6),
    torch.float8_e5m2fnuz: (-15, 14), torch.float8_e8m0fnu: (None, 126),
}  # fmt: skip
"""Exponents of the smallest normal value and of the beginning of the top two binades."""
INTEGERS = [
    torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool
]  # fmt: skip
COUNTS = "nan", "positive_infinity", "negative_infinity", "zero", "near_overflow", "subnormal", "first_bad"
LOOSE = {"mean": 1e-6, "std": 2e-5}


def expected(tensor: torch.Tensor) -> dict[str, float]:
    """What a row must say, computed on the CPU."""
    host = tensor.detach().cpu()
    is_float = host.dtype in FLOATS
    # .to of float8_e8m0fnu and of unsigned integers is exact.
    flat = (host.to(torch.float32).to(torch.float64) if is_float and host.dtype != torch.float64 else host).numpy()
    flat = flat.reshape(-1)
    x = flat.astype(np.float64)
    finite = x[np.isfinite(x)].astype(np.longdouble)
    bad = np.flatnonzero(~np.isfinite(x))
    low, near = FLOATS.get(host.dtype, (None, None))
    size = np.abs(finite)
    mean = finite.mean() if len(finite) else np.nan
    row = {
        "nan": np.isnan(x).sum(),
        "positive_infinity": (x == np.inf).sum(),
        "negative_infinity": (x == -np.inf).sum(),
        "zero": (x == 0).sum(),
        "near_overflow": 0 if near is None else (size >= 2.0**near).sum(),
        "subnormal": 0 if low is None else ((size > 0) & (size < np.longdouble(2) ** low)).sum(),
        "first_bad": bad[0] if len(bad) else -1,
        "min": float(finite.min()) if len(finite) else np.nan,
        "max": float(finite.max()) if len(finite) else np.nan,
        "mean": float(mean),
        "std": float(np.sqrt(((finite - mean) ** 2).sum() / (len(finite) - 1))) if len(finite) > 1 else np.nan,
        "exact_min": 0 if is_float else int(flat.min().astype(np.int64)),
        "exact_max": 0 if is_float else int(flat.max().astype(np.int64)),
    }
    return {
        name: float(value) if name in LOOSE or name in ("min", "max") else int(value) for name, value in row.items()
    }


def check(row: Any, tensor: torch.Tensor, what: str = "") -> None:
    want = expected(tensor)
    scale = max(want["std"], 0.0) if np.isfinite(want["std"]) else 1.0
    for name, value in want.items():
        got = row[name]
        if name == "mean":
            assert np.isclose(got, value, rtol=1e-6, atol=1e-6 * scale, equal_nan=True), (what, name, got, value)
        elif name == "std":
            assert np.isclose(got, value, rtol=2e-5, atol=0, equal_nan=True), (what, name, got, value)
        else:
            assert got == value or (np.isnan(value) and np.isnan(got)), (what, name, got, value)


def read(*tensors: torch.Tensor, most_bytes: int | None = None) -> Any:
    from stepscope.tracer.runtime.stats.cuda import CudaReader

    reader = CudaReader(tensors, most_bytes)
    block = reader(tensors)
    assert block.rows() is None
    rows = block.wait()
    assert len(rows) == len(tensors)
    return rows


def random(dtype: torch.dtype, n: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype is torch.bool or not dtype.is_floating_point:
        bits = torch.randint(0, 256, (n * dtype.itemsize,), generator=generator, dtype=torch.uint8)
        return (bits > 100).cuda() if dtype is torch.bool else bits.view(dtype).cuda()
    if dtype.itemsize == 1:
        return torch.randint(0, 256, (n,), generator=generator, dtype=torch.uint8).view(dtype).cuda()
    return torch.randn(n, generator=generator, dtype=torch.float64).to(dtype).cuda()


SIZES = 1, 7, 1000, 4096, 8192 + 3, 300_001
SPECIALS = [float("nan"), float("inf"), float("-inf"), 0.0, -0.0]


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_every_dtype_and_size(dtype: torch.dtype) -> None:
    tensors = [random(dtype, n, n) for n in SIZES]
    for row, tensor in zip(read(*tensors), tensors, strict=True):
        check(row, tensor, f"{dtype} {tensor.numel()}")


@pytest.mark.parametrize("dtype", [t for t in FLOATS if t.itemsize > 1], ids=str)
def test_special_values(dtype: torch.dtype) -> None:
    tiny = torch.finfo(dtype).tiny
    many = []
    for n in (100, 200_000):
        for values in ([v] for v in [*SPECIALS, tiny / 2, tiny, torch.finfo(dtype).max, torch.finfo(dtype).min]):
            x = random(dtype, n, 1)
            x[n // 2 :: 37] = values[0]
            many.append(x)
    for special in SPECIALS:
        many.append(torch.full((100_000,), special, dtype=dtype, device="cuda"))
    for row, tensor in zip(read(*many), many, strict=True):
        check(row, tensor, str(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_sums_do_not_cancel(dtype: torch.dtype) -> None:
    n = 3_000_000
    one_hot = torch.zeros(n, dtype=dtype, device="cuda")
    one_hot[0] = 0.1
    relu, constant = random(dtype, n, 2).relu(), torch.full((n,), 3.3, dtype=dtype, device="cuda")
    far = (torch.randn(n, device="cuda") + 1000).to(dtype)
    small = torch.randn(n, device="cuda").to(dtype) * (1e-25 if dtype not in (torch.float16,) else 1e-6)
    tensors = [one_hot, relu, constant, far, small]
    for number, (row, tensor) in enumerate(zip(read(*tensors), tensors, strict=True)):
        check(row, tensor, f"{dtype} {number}")


def test_float64_and_float32_keep_their_range() -> None:
    base = torch.randn(100_000, dtype=torch.float64, device="cuda")
    tensors = [base * 1e-300, base * 1e300, base * 1e150, (base * 1e37).float(), base + 1e9]
    tensors.append(torch.cat([base * 1e300, base * 1e-300]))
    for row, tensor in zip(read(*tensors), tensors, strict=True):
        check(row, tensor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_views(dtype: torch.dtype) -> None:
    base = random(dtype, 64 * 96 * 130).view(64, 96, 130)
    if dtype.is_floating_point:
        base[40, 3, 7] = float("inf")
        base[2, 90, 100] = float("nan")
    views = [
        base.transpose(0, 1), base.permute(2, 0, 1), base[:, :, ::2], base[1:, 5:90, 3:], base[::3].transpose(1, 2),
        base[0].expand(5, 96, 130), base.reshape(-1)[1:], base.reshape(-1)[3:70_000], base[:0], base[0, 0, 0],
        base.view(4, 16, 8, 12, 130)[:, ::2, ::2, ::2, ::2].permute(4, 1, 2, 0, 3),
    ]  # fmt: skip
    filled = [view for view in views if view.numel()]
    for row, view in zip(read(*filled), filled, strict=True):
        check(row, view, f"{tuple(view.shape)} {view.stride()}")
    (row,) = read(base[:0], base)[:1]
    assert row["first_bad"] == -1
    assert np.isnan(row["mean"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int32], ids=str)
def test_views_in_contiguous_pieces(dtype: torch.dtype) -> None:
    joint = random(dtype, 4 * 256 * 3 * 8 * 64).view(4, 256, 3, 8, 64)
    q, k, v = joint.permute(2, 0, 3, 1, 4).unbind(0)
    if dtype.is_floating_point:
        k[3, 7, 100, 5] = float("inf")  # only some parts of k are read exactly
        v[0, 0, 0, 0] = float("nan")
    wide = random(dtype, 32 * 40 * 512, 1).view(32, 40, 512)
    views = [
        q, k, v, q.transpose(1, 2), wide[:, 3:30, 64:256], wide[1:, :, 8:], wide[:, :, 16:32], wide[:5, :, :136],
        wide[:, 0].unsqueeze(1).expand(32, 6, 512), wide[:, 2:3, 8:504].expand(32, 7, 496), wide[:, :, 3:259],
        wide.view(4, 8, 40, 512)[:, 2:6, 1:9, :64],
    ]  # fmt: skip
    for row, view in zip(read(*views), views, strict=True):
        check(row, view, f"{tuple(view.shape)} {view.stride()}")


def test_what_is_not_read_is_said() -> None:
    from stepscope.tracer.runtime.stats.cuda import CudaReader, unreadable

    many = torch.zeros((4,) * 6, device="cuda")[::2, ::2, ::2, ::2, ::2, ::2]
    assert unreadable(many) is not None
    reader = CudaReader([many, torch.ones(3, device="cuda")])
    assert reader.looked_at == [0, 3]
    rows = reader([many, torch.ones(3, device="cuda")]).wait()
    assert np.isnan(rows["mean"][0])
    assert rows["mean"][1] == 1


def test_sample_of_a_large_tensor() -> None:
    from stepscope.tracer.runtime.stats.cuda import CudaReader

    for x in (torch.randn(4_000_000, device="cuda"), torch.randn(4_000_001, device="cuda").half()[1:]):
        reader = CudaReader([x], 1 << 20)
        (row,) = reader([x]).wait()
        assert 0 < reader.looked_at[0] * x.itemsize <= 1 << 20
        assert abs(row["mean"]) < 0.02
        assert abs(row["std"] - 1) < 0.02
    x[:] = float("nan")
    (row,) = reader([x]).wait()
    assert row["nan"] == reader.looked_at[0]


def test_the_arena_wraps_around() -> None:
    from stepscope.tracer.runtime.stats.arena import arena_of
    from stepscope.tracer.runtime.stats.cuda import CudaReader

    tensors = [torch.full((50,), float(i), device="cuda") for i in range(40)]
    reader = CudaReader(tensors)
    blocks: list[Any] = []
    for turn in range(200):
        tensors[3].fill_(turn)
        blocks.append(reader(tensors))
    arena_of(0).flush()
    for turn, block in enumerate(blocks):
        rows = block.wait()
        assert rows["mean"].tolist() == [float(turn) if i == 3 else float(i) for i in range(40)]
        times = block.times()
        assert times is not None
        assert (times[:, 0] <= times[:, 1]).all()
        assert (times > 0).all()


@pytest.mark.parametrize("n", [1, 2, 4, 5, 16, 17, 64, 65, 150])
def test_any_number_of_tensors_in_one_reading(n: int) -> None:
    tensors = [random(torch.float32, 3 + 1000 * (i % 5), i) for i in range(n)]
    tensors[n // 2] = torch.arange(12.0, device="cuda").reshape(3, 4).T
    for row, tensor in zip(read(*tensors), tensors, strict=True):
        check(row, tensor, f"{n}")


def test_streams() -> None:
    from stepscope.tracer.runtime.stats.arena import arena_of
    from stepscope.tracer.runtime.stats.cuda import CudaReader

    streams = [torch.cuda.Stream() for _ in range(3)]  # type: ignore[no-untyped-call]
    x = [torch.zeros(100_000, device="cuda") for _ in streams]
    torch.cuda.synchronize()
    reader = CudaReader(x[:1])
    blocks = []
    for turn in range(60):
        for number, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                torch.cuda._sleep(20_000)  # type: ignore[no-untyped-call]
                x[number].fill_(100 * turn + number)
                blocks.append((100 * turn + number, reader([x[number]])))
        if turn % 7 == 0:
            with torch.cuda.stream(streams[turn % 3]):
                arena_of(0).flush()
    for value, block in blocks:
        assert block.wait()["min"].tolist() == [value]


@pytest.fixture
def replays() -> Iterator[tuple[Replays, list[Any]]]:
    from stepscope.tracer.runtime.stats.arena import watch_captures

    seen: list[Any] = []
    watcher = Replays(lambda graph, begins: seen.append((graph, begins)))
    watcher.attach()
    watch_captures(watcher.current)
    yield watcher, seen
    watcher.detach()
    watch_captures(None)


def test_cuda_graph(replays: tuple[Replays, list[Any]]) -> None:
    from stepscope.tracer.runtime.stats.arena import arena_of
    from stepscope.tracer.runtime.stats.cuda import CudaReader

    x = torch.zeros(20_000, device="cuda")
    y = torch.zeros_like(x).half()
    reader, wide = CudaReader([x, y]), CudaReader([x] * 20)
    graph = torch.cuda.CUDAGraph()
    reader([x, y])
    wide([x] * 20)
    arena_of(0).flush()
    with torch.cuda.graph(graph):
        captured: list[Any] = [reader([x, y])]
        y.copy_(x * 2)
        captured.append(reader([x, y]))
        captured += [wide([x] * 20) for _ in range(5)]
    assert captured[0].rows() is None
    found = []
    for turn in range(1, 6):
        x.fill_(float(turn))
        x[turn] = float("nan")
        graph.replay()
        found.append(arena_of(0).snapshot(graph))
    assert [begins for _, begins in replays[1]] == [True, False] * 5
    for turn, snapshots in enumerate(found, 1):
        assert snapshots is not None
        after = captured[1].of(snapshots).wait()
        assert after["mean"].tolist() == [turn, 2 * turn]
        assert after["first_bad"].tolist() == [turn, turn]
        assert after["nan"].tolist() == [1, 1]
        for block in captured[2:]:
            assert block.of(snapshots).wait()["max"].tolist() == [turn] * 20
        assert captured[0].of(snapshots).wait()["max"].tolist() == [turn, 0 if turn == 1 else 2 * turn - 2]
    graph.reset()


def test_a_full_region_is_said(replays: tuple[Replays, list[Any]]) -> None:
    from stepscope.tracer.runtime.stats.cuda import CudaReader

    x = [torch.ones(10, device="cuda")] * 16
    reader = CudaReader(x)
    graph = torch.cuda.CUDAGraph()
    reader(x)
    with torch.cuda.graph(graph):
        blocks = [reader(x) for _ in range(400)]
    skipped = [block for block in blocks if block.skipped]
    assert 0 < len(skipped) < 350
    assert np.isnan(skipped[0].wait()["mean"]).all()
    graph.reset()


def test_a_capture_that_nobody_saw() -> None:
    from stepscope.tracer.runtime.stats.cuda import CudaReader

    x = [torch.ones(10, device="cuda")]
    reader = CudaReader(x)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        block = reader(x)
    assert block.skipped


def test_compiled_code_with_cuda_graphs(replays: tuple[Replays, list[Any]]) -> None:
    compiled = torch.compile(lambda x: (x @ x).sin().sum(), mode="reduce-overhead")
    x = torch.randn(64, 64, device="cuda")
    for _ in range(6):
        compiled(x)
    torch.cuda.synchronize()
    assert len({id(graph) for graph, _ in replays[1]}) == 1
    begins = [begins for _, begins in replays[1]]
    assert len(begins) >= 6
    assert begins == [True, False] * (len(begins) // 2)
    assert replays[0].current() is None


def test_rows_of_a_graph_that_is_gone_are_used_again(replays: tuple[Replays, list[Any]]) -> None:
    from stepscope.tracer.runtime.stats.arena import arena_of
    from stepscope.tracer.runtime.stats.cuda import CudaReader

    x = [torch.ones(10, device="cuda") * i for i in range(16)]
    reader = CudaReader(x)
    reader(x)
    for _ in range(12):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            blocks: list[Any] = [reader(x) for _ in range(60)]
        assert not any(block.skipped for block in blocks)
        graph.replay()
        snapshots = arena_of(0).snapshot(graph)
        assert snapshots is not None
        assert blocks[-1].of(snapshots).wait()["max"].tolist() == list(range(16))
        graph.reset()
        arena_of(0).forget(graph)


def test_the_arena_keeps_out_of_other_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    from stepscope.tracer.runtime.stats import arena, cuda

    monkeypatch.setattr(arena, "_arenas", {})
    pool = torch.cuda.MemPool()
    x = torch.ones(10, device="cuda")
    with torch.cuda.use_mem_pool(pool):
        assert cuda.CudaReader([x])([x]).wait()["mean"] == 1
    assert not pool.snapshot()  # type: ignore[no-untyped-call]


def test_memory() -> None:
    from stepscope.tracer.runtime.stats.arena import arena_of
    from stepscope.tracer.runtime.stats.cuda import CudaReader

    assert arena_of(0)._memory.nbytes <= 1 << 20
    x = torch.randn(1 << 22, device="cuda")
    CudaReader([x])([x]).wait()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    readers = [CudaReader([x, x.half()]) for _ in range(50)]
    blocks = [reader([x, x]) for reader in readers]
    blocks[-1].wait()
    del readers
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.max_memory_allocated() - before <= x.nbytes // 2 + 1024


def test_nothing_waits() -> None:
    from stepscope.tracer.runtime.stats.arena import arena_of
    from stepscope.tracer.runtime.stats.cuda import CudaReader

    x = torch.randn(1000, device="cuda")
    reader = CudaReader([x])
    reader([x]).wait()
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.cuda._sleep(200_000_000)  # type: ignore[no-untyped-call]
        blocks = [reader([x]) for _ in range(100)]
        arena_of(0).flush()
        assert blocks[-1].rows() is None
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert blocks[0].wait()["mean"] == blocks[-1].wait()["mean"]
