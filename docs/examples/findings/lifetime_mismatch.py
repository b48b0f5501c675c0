"""An operator keeps the activations that it is given, so that their memory is not freed where the compiled code frees
it.

$ stepscope run lifetime_mismatch.py
warning: buf0 (4.1 kB) of graph 0/0 inference was not freed (2 times); it is held by watched['hidden'] of __main__ (dict
of 1)
"""

import sys

import torch
from torch import Tensor

watched: dict[str, Tensor] = {}


@torch.library.custom_op("example::watch", mutates_args=())
def watch(name: str, x: Tensor) -> Tensor:
    watched[name] = x.mean() if "--fixed" in sys.argv else x
    return x.clone()


@watch.register_fake
def fake_watch(name: str, x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.compile
def model(x: Tensor, w: Tensor) -> Tensor:
    hidden = x @ w
    same: Tensor = watch("hidden", hidden)
    return same @ w.T


for _ in range(2):
    model(torch.randn(16, 32), torch.randn(32, 64))
