"""The weights of the best epoch are kept as references, which the training goes on to change.

$ stepscope run uncopied_state.py
warning: load_state_dict() (uncopied_state.py:32) restores nothing: state_dict() (uncopied_state.py:28) returned the
parameters of Sequential rather than copies, and SGD has changed them since
"""

import copy
import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(64, 16)
targets = inputs.sum(1, keepdim=True)
best, best_loss = model.state_dict(), float("inf")
for epoch in range(6):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(compiled(inputs), targets)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    if epoch % 2 == 0 and loss.item() < best_loss:
        best_loss = loss.item()
        best = model.state_dict()
        if "--fixed" in sys.argv:
            best = copy.deepcopy(best)

model.load_state_dict(best)
