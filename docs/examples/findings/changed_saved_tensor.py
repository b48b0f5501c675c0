"""The weights are clipped through `.data` between the forward pass and the backward pass, so that autograd does not
notice and computes gradients of other weights.

$ stepscope run --level values changed_saved_tensor.py
critical: self.2.weight (primals_4) was saved for the backward pass and changed between the compiled call at
changed_saved_tensor.py:28 and the backward pass at changed_saved_tensor.py:31
"""

import sys

import torch
from torch import nn

CLIPS_BEFORE = "--fixed" not in sys.argv


def clip() -> None:
    for parameter in critic.parameters():
        parameter.data.clamp_(-0.1, 0.1)


torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
compiled = torch.compile(critic)
optimizer = torch.optim.RMSprop(critic.parameters(), lr=0.01)
for _ in range(5):
    optimizer.zero_grad()
    loss = compiled(torch.randn(64, 16)).mean()
    if CLIPS_BEFORE:
        clip()
    loss.backward()
    optimizer.step()
    if not CLIPS_BEFORE:
        clip()
