"""The block counts its batches in its forward pass, which activation checkpointing runs twice, so that it counts each
batch twice.

$ stepscope run repeated_update.py
warning: self.batches is updated twice (repeated_update.py:26): in the forward pass, and by its recomputation
in the backward pass
"""

import sys

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    batches: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.register_buffer("batches", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if "--fixed" not in sys.argv:
            self.batches += 1
        hidden: Tensor = self.layer(x).relu()
        return hidden


block = Block()
block.compile()
optimizer = torch.optim.SGD(block.parameters(), lr=0.01)
for _ in range(5):
    hidden = checkpoint(block, torch.randn(8, 16), use_reentrant=False, preserve_rng_state=False)
    loss = hidden.square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if "--fixed" in sys.argv:
        block.batches += 1
print(f"{block.batches.item():.0f} batches")
