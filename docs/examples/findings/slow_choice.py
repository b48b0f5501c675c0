"""The autotuner has a choice that computes each product four times, and a handler of the program takes the slowest.

$ stepscope run --fresh-cache slow_choice.py
warning: The fastest choice that the autotuner measured would save 66 % of a step (12.9 ms of 19.5 ms), but
extern_kernels.four_products and 3 other launches of a step use another one
"""

import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch._inductor import config
from torch._inductor.choices import InductorChoices
from torch._inductor.select_algorithm import ExternKernelChoice, add_preprocessing_fn
from torch._inductor.virtualized import V


def four_products(x: Tensor, factors: Tensor, *, out: Tensor) -> Tensor:
    for _ in range(4):
        torch.bmm(x, factors, out=out)
    return out


class Choices(InductorChoices):
    def override_best_choice(self, best_choice: Any, timings: Mapping[Any, float]) -> Any:
        return best_choice if "--fixed" in sys.argv else max(timings, key=lambda choice: timings[choice])


@torch.compile
def products(x: Tensor, factors: Tensor) -> Tensor:
    for _ in range(4):
        x = torch.bmm(x, factors)
    return x


config.max_autotune = True
config.max_autotune_gemm_backends = "ATEN"
repeated: Any = ExternKernelChoice(four_products, name="four_products")
add_preprocessing_fn(lambda choices: [*choices, repeated.bind(choices[0].input_nodes, choices[0].layout)])
V.set_choices_handler(Choices())
x, factors = torch.randn(8, 128, 256), torch.randn(8, 256, 256) * 0.05
for _ in range(12):
    products(x, factors)
