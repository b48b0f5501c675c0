"""The function loops over a Python number that changes with each call, so that each number needs a graph of its own.

$ stepscope run recompile_limit.py
warning: propagate (recompile_limit.py:18) reached the recompile limit (8) in step 7, and has run uncompiled since
then: hops changed (1, 2, 3, 4, … 8)
"""

import sys

import torch
from torch import Tensor


def hop(graph: Tensor, x: Tensor) -> Tensor:
    return graph @ x


def propagate(graph: Tensor, x: Tensor, hops: int) -> Tensor:
    for _ in range(hops):
        x = hop(graph, x)
    return x


if "--fixed" in sys.argv:
    hop = torch.compile(hop)
else:
    propagate = torch.compile(propagate)

graph, x = torch.eye(16), torch.randn(16, 4)
for hops in range(1, 13):
    propagate(graph, x, hops)
