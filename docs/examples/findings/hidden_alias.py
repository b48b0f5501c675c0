"""The operator returns its input although it promises a tensor of its own, so that the compiler writes a result over
the tensor that is still needed.

$ stepscope run hidden_alias.py
critical: example.contiguous (hidden_alias.py:26) returns the memory of its input buf0 as buf1, although its schema
promises new memory, and add (hidden_alias.py:26) overwrites it
"""

import sys

import torch
from torch import Tensor


def contiguous(x: Tensor) -> Tensor:
    return x.clone() if "--fixed" in sys.argv else x.contiguous()


torch.library.define("example::contiguous", "(Tensor x) -> Tensor")
torch.library.impl("example::contiguous", "cpu", contiguous)
torch.library.register_fake("example::contiguous", torch.empty_like)


@torch.compile
def sine_and_next(x: Tensor) -> tuple[Tensor, Tensor]:
    sine = x.sin()
    return sine, torch.ops.example.contiguous(sine) + 1


sine_and_next(torch.rand(16, 16))
