"""The judge on a GPU: faults in Triton kernels are named, and healthy kernels are not accused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch._inductor import config

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


def test_sums_of_bytes_on_the_device_change_with_their_places() -> None:
    tensor = torch.tensor([0, 1, 1, 0, 1], dtype=torch.uint8, device="cuda")
    first, second = Sums().of([tensor, tensor[[0, 1, 3, 2, 4]]])
    assert first != second
