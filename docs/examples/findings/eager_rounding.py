"""The squares overflow in float16, which the generated kernel avoids because it computes in float32, so that the
compiled function is right and the same function without the compiler is not.

$ stepscope run --judge first eager_rounding.py
info: Compiled code agrees with float64 to 5e-09 and eager code is off (it is not finite), in 1 launch: this is
rounding, not a compiler error
"""

import sys

import torch
from torch import Tensor

DTYPE = torch.float32 if "--fixed" in sys.argv else torch.float16


@torch.compile
def rms_norm(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True))


torch.manual_seed(0)
rms_norm(100 * torch.randn(16, 64).to(DTYPE))
