"""The checkpoint of a compiled model loads nothing into one that is not compiled yet.

$ stepscope run unmatched_keys.py
warning: load_state_dict(strict=False) (unmatched_keys.py:30) does not load 4 of 4 tensors of Classifier: the keys of
the checkpoint contain "_orig_mod." of torch.compile
"""

import sys
from typing import Any

import torch
from torch import nn

torch.manual_seed(0)


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)  # type: ignore[no-any-return]


trained: Any = torch.compile(Classifier())
checkpoint = (trained._orig_mod if "--fixed" in sys.argv else trained).state_dict()

model = Classifier()
model.load_state_dict(checkpoint, strict=False)
with torch.no_grad():
    torch.compile(model)(torch.randn(64, 16))
