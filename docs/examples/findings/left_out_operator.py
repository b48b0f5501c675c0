"""The operator does not declare that it writes into the cache, and it returns nothing, so that the compiler takes it
for one without effect and the cache stays empty.

$ stepscope run --fresh-cache left_out_operator.py
warning: example.append (left_out_operator.py:29) was left out of the generated code: it has no result that is used and
declares no argument that it changes
"""

import sys

import torch
from torch import Tensor

CHANGES = ["cache"] if "--fixed" in sys.argv else []


@torch.library.custom_op("example::append", mutates_args=CHANGES)
def append(cache: Tensor, row: Tensor, position: int) -> None:
    cache[position] = row


@append.register_fake
def _(cache: Tensor, row: Tensor, position: int) -> None:
    pass


@torch.compile(dynamic=True)
def attend(cache: Tensor, x: Tensor, position: int) -> Tensor:
    append(cache, x, position)
    return (cache @ x).softmax(0) @ cache


cache = torch.zeros(8, 16)
for position in range(8):
    attend(cache, torch.randn(16), position)
