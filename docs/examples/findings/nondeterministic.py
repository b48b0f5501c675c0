"""Several threads add to the same bins in an order that is not fixed, so that the sums of the same numbers are rounded
differently in each call.

$ stepscope run --level values nondeterministic.py
info: cpp_fused_index_add_zeros_0 (nondeterministic.py:19) gave different results for the same inputs
"""

import sys

import torch
from torch import Tensor

torch.use_deterministic_algorithms("--fixed" in sys.argv)
torch.set_num_threads(8)


@torch.compile
def pooled(values: Tensor, bins: Tensor) -> Tensor:
    return torch.zeros(4).index_add(0, bins, values)


torch.manual_seed(0)
values, bins = torch.randn(200_000), torch.randint(4, (200_000,))
for _ in range(10):
    pooled(values, bins)
