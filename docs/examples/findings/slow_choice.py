"""The program has a handler of its own for the autotuner's choices, which always takes the slowest.

$ stepscope run --fresh-cache slow_choice.py
warning: The fastest choice that the autotuner measured would save 52 % of a step (7.17 ms of 13.9 ms), but
cpp_fused_bmm_0 and 3 other launches of a step use another one
"""

import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch._inductor import config
from torch._inductor.choices import InductorChoices
from torch._inductor.virtualized import V


class Choices(InductorChoices):
    def override_best_choice(self, best_choice: Any, timings: Mapping[Any, float]) -> Any:
        return best_choice if "--fixed" in sys.argv else max(timings, key=lambda choice: timings[choice])


@torch.compile
def products(x: Tensor, factors: Tensor) -> Tensor:
    for _ in range(4):
        x = torch.bmm(x, factors)
    return x


config.max_autotune = True
config.max_autotune_gemm_backends = "CPP,ATEN"
V.set_choices_handler(Choices())
x, factors = torch.randn(8, 128, 256), torch.randn(8, 256, 256) * 0.05
for _ in range(12):
    products(x, factors)
