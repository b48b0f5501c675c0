"""The forward pass branches on values of its input, so that an export can only contain one of the branches.

$ stepscope run draft_export.py
warning: Draft export found 1 data-dependent error: Eq(u0, 1), assumed to be True
"""

import sys

import torch
from torch import Tensor, nn


class Normalize(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if "--fixed" in sys.argv:
            return x / x.abs().max().clamp(min=1)
        if x.abs().max() > 1:
            x = x / x.abs().max()
        return x


exported = torch.export.draft_export(Normalize(), (torch.linspace(-2, 2, 8),))
print(exported.graph_module.code)
