"""The operator copies one element more than its output has room for, and so writes past the end of it.

$ stepscope run --red-zones red_zone_write.py
critical: example.fast_copy (red_zone_write.py:30) wrote 4 bytes past the end of buf0, in step 0
"""

import ctypes
import sys

import torch
from torch import Tensor

SURPLUS = 0 if "--fixed" in sys.argv else 1


@torch.library.custom_op("example::fast_copy", mutates_args=["out"])
def fast_copy(x: Tensor, out: Tensor) -> None:
    elements = out.numel() + SURPLUS
    ctypes.memmove(out.data_ptr(), x.data_ptr(), elements * x.element_size())


@fast_copy.register_fake
def _(x: Tensor, out: Tensor) -> None:
    pass


@torch.compile
def first_rows(x: Tensor) -> Tensor:
    rows = x.new_empty(8, 16)
    fast_copy(x, rows)
    return rows @ x


first_rows(torch.rand(16, 16))
