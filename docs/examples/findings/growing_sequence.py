"""The model attends to the whole text that it has read so far, so that each step takes longer than the one before.

$ stepscope run growing_sequence.py
warning: Steps become slower, from 5.39 ms to 69.1 ms, as text.size()[2] grows from 768 to 3,072 in steps 2 to 11
"""

import sys

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

WINDOW = 256 if "--fixed" in sys.argv else 10_000


@torch.compile
def attend(text: Tensor) -> Tensor:
    return scaled_dot_product_attention(text, text, text)


text = torch.randn(1, 4, 256, 32)
for _ in range(12):
    attend(text)
    text = torch.cat([text, torch.randn(1, 4, 256, 32)], dim=2)[:, :, -WINDOW:]
