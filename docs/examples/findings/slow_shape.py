"""Every other batch has a length that is a prime number, for which the Fourier transform takes several times as long.

$ stepscope run slow_shape.py
warning: torch.ops.aten._fft_r2c.default takes 5.6 times as long for x.size()[1] = 16,381 as for x.size()[1] = 16,384:
12.7 ms instead of 2.24 ms per launch
"""

import sys

import torch
from torch import Tensor

LENGTHS = (16384, 16000) if "--fixed" in sys.argv else (16384, 16381)


@torch.compile(dynamic=True)
def power(x: Tensor) -> Tensor:
    spectrum = torch.view_as_real(torch.fft.rfft(x))
    return spectrum.square().sum(-1)


signal = torch.randn(64, max(LENGTHS))
for step in range(24):
    power(signal[:, : LENGTHS[step % 2]].contiguous())
