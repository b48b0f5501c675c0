"""The table has one row too few for the largest token, which the compiled code notices when it looks the row up, but
the program skips the batch and says nothing.

$ stepscope run raised_call.py
warning: index (raised_call.py:19) raised RuntimeError: index out of bounds: 0 <= tmp7 < 100L; the program went on
"""

import sys
from contextlib import suppress

import torch
from torch import Tensor

ROWS = 101 if "--fixed" in sys.argv else 100


@torch.compile
def embed(table: Tensor, tokens: Tensor) -> Tensor:
    return table[tokens] * 2


table = torch.randn(ROWS, 64)
for tokens in ([7, 8, 9], [98, 99, 100], [7, 8, 9]):
    with suppress(RuntimeError):
        embed(table, torch.tensor(tokens))
