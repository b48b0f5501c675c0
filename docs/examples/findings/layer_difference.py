"""A pass of the program's own replaces a division by a multiplication, which is faster, but forgets to take the
reciprocal.

$ stepscope run --check-eager layer_difference.py
critical: Compiled attention_scores (layer_difference.py:27) differs from eager: output 0, 256 of 256 elements
"""

import sys

import torch
import torch._inductor.config
from torch import Tensor, fx

aten = torch.ops.aten


def divide_by_multiplying(graph: fx.Graph) -> None:
    for node in graph.find_nodes(op="call_function", target=aten.div.Tensor):
        dividend, divisor = node.args
        node.target = aten.mul.Tensor
        node.args = (dividend, 1 / divisor if "--fixed" in sys.argv else divisor)


torch._inductor.config.post_grad_custom_pre_pass = divide_by_multiplying


@torch.compile
def attention_scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.T / 8


attention_scores(torch.randn(16, 64), torch.randn(16, 64))
