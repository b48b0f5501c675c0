"""The judge on a GPU: faults in Triton kernels are named, and healthy kernels are not accused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch._inductor import config

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
