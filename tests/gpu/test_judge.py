"""The judge on a GPU: faults in Triton kernels are named, and healthy kernels are not accused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch._inductor import config

from stepscope.tracer.judge import once, rule
from stepscope.tracer.judge.sums import Sums, words_of
from tests.judge.faults import Score, kernel_faults

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.mark.parametrize(("model", "dtype"), [("mlp", torch.bfloat16), ("convolution", torch.float32)])
def test_faults_in_triton_kernels_are_named(model: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """Plant a fault of each kind, a factor of one spacing of bfloat16 among them."""
    score = Score()
    with config.patch(deterministic=True):
        kernel_faults(model, dtype, 1, score, tmp_path, "cuda")
    visible = sum(count for (_, outcome), count in score.counts.items() if outcome == "visible")
    exact = sum(count for (_, outcome), count in score.counts.items() if outcome == "visible exact")
    assert score.innocent == 0
    assert visible >= 20
    assert exact == visible


def weighted(tensor: torch.Tensor) -> int:
    """Return the sum as it is defined, of words on the CPU."""
    words: list[int] = words_of(tensor).cpu().tolist()
    return (sum(word * (2 * place + 1) for place, word in enumerate(words)) + 2**63) % 2**64 - 2**63


def test_sums_of_tensors_on_the_device_are_those_of_their_words() -> None:
    sizes = (1, 2, 7, 4096, 4097, 100_003, 0, 33, 8, 600)
    tensors = [torch.randn(size, device="cuda") for size in sizes]
    tensors += [torch.randn(64, 32, device="cuda").t(), torch.randn(64, 32, device="cuda", dtype=torch.bfloat16)]
    sums = Sums()
    assert [int(one) for one in sums.of(tensors)] == [weighted(one) for one in tensors]
    with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
        assert [int(one) for one in sums.of(tensors)] == [weighted(one) for one in tensors]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("shape", [(3, 5), (700, 2049), (2, 3, 4, 64), (1, 40_000), (50, 1)])
def test_one_kernel_measures_what_thirty_operations_do(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    from stepscope.tracer.judge.cuda_errors import Weights, measured

    torch.manual_seed(0)
    r = torch.randn(shape, device="cuda", dtype=torch.float64) * 3
    eager = r.to(dtype)
    compiled = (r * (1 + 1e-3 * torch.randn_like(r))).to(dtype)
    weights = Weights(2.0, 0.01, 1e-9, 3.0, 0.5, 1e-6)
    c, e, rounding = compiled - r, eager - r, r.to(dtype) - r
    rows = [rule.row_maximum(one.abs()) for one in (c, e, r)]
    ratios = c.abs() / (rows[1] * weights.explained + r.abs() * weights.share + weights.least)
    off = e.abs() / (rows[0] * weights.beside + rows[2] * weights.size + weights.least_off)
    sums = [(one * r).sum() for one in (c, e, rounding)] + [one.square().sum() for one in (c, e, r)]
    wanted = [float(one) for one in (*sums, ratios.amax(), off.amax())]
    found = measured(compiled, eager, r, weights)
    assert found is not None
    assert list(found) == pytest.approx(wanted, rel=1e-9, abs=1e-12 * wanted[5])


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_leave_the_narrow_rule(which: int, value: float) -> None:
    double = torch.ones(64, 64, device="cuda", dtype=torch.float64)
    tensors = [double.bfloat16(), double.bfloat16(), double]
    tensors[which] = tensors[which].clone()
    tensors[which][5, 7] = value
    assert once.compare(tensors[0], tensors[1], tensors[2], lambda count: []) is None


def test_sums_of_bytes_on_the_device_change_with_their_places() -> None:
    tensor = torch.tensor([0, 1, 1, 0, 1], dtype=torch.uint8, device="cuda")
    first, second = Sums().of([tensor, tensor[[0, 1, 3, 2, 4]]])
    assert first != second
