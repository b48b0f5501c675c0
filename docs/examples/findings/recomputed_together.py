"""The model runs the same checkpointed blocks twice, and the backward pass of its one graph computes the activations of
several of them again before it needs them.

$ stepscope run recomputed_together.py
warning: Graph 0/0 backward keeps the recomputed activations of 5 checkpointed regions alive together, 22.1 MB of the
peak of 36.1 MB
"""

import sys

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 512), nn.Linear(512, 64)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        inner = self.norm(x) if context is None else self.norm(x) + context
        added: Tensor = self.down(nn.functional.gelu(self.up(inner)))
        return x + added


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def run(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, context, use_reentrant=False)
        return x

    def forward(self, text: Tensor, image: Tensor) -> Tensor:
        plain = self.run(text)
        both = self.run(text, image)
        return plain.mean(1).square().mean() + both.square().mean()


model = Tower()
for part in model.blocks if "--fixed" in sys.argv else [model]:
    part.compile()
for _ in range(3):
    model(torch.randn(32, 64, 64), torch.randn(32, 1, 64)).backward()
