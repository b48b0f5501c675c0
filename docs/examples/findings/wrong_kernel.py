"""The lowering that the program registers for its own operator has another factor than the operator, so that the
generated kernel computes something else.

$ stepscope run --judge first wrong_kernel.py
critical: cpp_fused_quick_gelu_0 computes wrong values of buf1: 511 of 512 elements are wrong, by up to 1.16e+05 times
the allowed error
"""

import sys
from typing import Any

import torch
import torch._inductor.config
from torch import Tensor
from torch._inductor.lowering import lowerings, register_lowering

torch._inductor.config.fx_graph_cache = False  # it does not notice that a lowering has changed
FACTOR = 1.702 if "--fixed" in sys.argv else 1.072


@torch.library.custom_op("example::quick_gelu", mutates_args=())
def quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


@quick_gelu.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@register_lowering(torch.ops.example.quick_gelu.default)
def _(x: Any) -> Any:
    mul, sigmoid = lowerings[torch.ops.aten.mul.Tensor], lowerings[torch.ops.aten.sigmoid.default]
    return mul(x, sigmoid(mul(x, FACTOR)))


@torch.compile
def model(x: Tensor, w: Tensor) -> Tensor:
    hidden: Tensor = quick_gelu(x @ w)
    return hidden


model(torch.randn(16, 8), torch.randn(8, 32))
