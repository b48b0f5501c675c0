"""The pass over the graph has no uuid, so that Inductor cannot know whether a cached graph was made with this pass.

$ stepscope run cache_bypass.py
info: The compile of layer (cache_bypass.py:22) bypassed the cache: Unsupported post grad custom pass
"""

import sys

import torch
from torch import Tensor, fx
from torch._inductor.custom_graph_pass import CustomGraphPass


class CountOperators(CustomGraphPass):
    def __call__(self, graph: fx.Graph) -> None:
        print("operators:", sum(node.op == "call_function" for node in graph.nodes))

    def uuid(self) -> str | None:
        return "1" if "--fixed" in sys.argv else None


def layer(x: Tensor, weight: Tensor) -> Tensor:
    return x @ weight


compiled = torch.compile(layer, options={"post_grad_custom_post_pass": CountOperators()})
for _ in range(3):
    compiled(torch.randn(16, 8), torch.randn(8, 4))
