"""The operator computes with NumPy, whose default is float64, and its fake kernel promises float32, so that the kernel
takes the bytes of the result for other numbers.

$ stepscope run misread_dtype.py
critical: example.decay (misread_dtype.py:29) returns float64, although its fake kernel promises float32: mul
(misread_dtype.py:30) reads its bytes as float32
"""

import sys

import numpy as np
import torch
from torch import Tensor


@torch.library.custom_op("example::decay", mutates_args=())
def decay(ages: Tensor) -> Tensor:
    factors = torch.from_numpy(np.power(0.5, ages.numpy()))
    return factors.float() if "--fixed" in sys.argv else factors


@decay.register_fake
def _(ages: Tensor) -> Tensor:
    return torch.empty_like(ages, dtype=torch.float32)


@torch.compile
def score(values: Tensor, ages: Tensor) -> Tensor:
    weight: Tensor = decay(ages)
    return values * weight


score(torch.randn(16), torch.arange(16))
