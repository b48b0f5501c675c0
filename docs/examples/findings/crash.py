"""Padding is marked with a token that has no row in the table, and the compiler was told not to check indices, so that
the kernel reads far outside of the table and the process dies.

$ stepscope run crash.py
critical: Process 29122 was killed by SIGSEGV in launch 1 of step 1, cpp_fused_index_mul_0
"""

import sys

import torch
import torch._inductor.config
from torch import Tensor

PADDING = 0 if "--fixed" in sys.argv else torch.iinfo(torch.int32).max
torch._inductor.config.assert_indirect_indexing = False


@torch.compile
def embed(table: Tensor, tokens: Tensor) -> Tensor:
    return table[tokens] * 2


table = torch.randn(100, 64)
for tokens in ([7, 8, 9], [7, 8, PADDING]):
    embed(table, torch.tensor(tokens))
