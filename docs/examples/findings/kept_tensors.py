"""The cache of the masks compares the tensors of lengths by identity. Each request has a new one, so that the cache
never hits and keeps every mask.

$ stepscope run kept_tensors.py
warning: Memory outside of compiled code grows by 65.5 kB per step: more and more bool tensors of shape
[4, 128, 128] stay alive, held by the functools.lru_cache of mask_of() (kept_tensors.py:17)
"""

import functools
import sys
import time

import torch
from torch import Tensor


@functools.cache
def mask_of(lengths: Tensor) -> Tensor:
    inside = torch.arange(128) < lengths[:, None]
    return inside[:, :, None] & inside[:, None, :]


@torch.compile
def attention(x: Tensor, mask: Tensor) -> Tensor:
    return (x @ x.mT).masked_fill(~mask, -1e9).softmax(-1) @ x


for _ in range(310):
    lengths = torch.randint(64, 129, (4,))
    mask = mask_of.__wrapped__(lengths) if "--fixed" in sys.argv else mask_of(lengths)
    attention(torch.randn(4, 128, 32), mask)
    time.sleep(0.05)  # until the next request
