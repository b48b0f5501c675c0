"""The weights are loaded after the model was compiled with freezing, so that the compiled graph goes on with the old
ones.

$ stepscope run frozen_weight.py
critical: The frozen weight self.weight of graph 0 (frozen_weight.py:21) changed before step 1, and the graph still uses
its old constant
"""

import sys

import torch
import torch._inductor.config
from torch import nn

torch._inductor.config.freezing = True

torch.manual_seed(0)
model, trained = nn.Linear(16, 4).eval(), nn.Linear(16, 4)
compiled = torch.compile(model)
with torch.no_grad():
    compiled(torch.rand(64, 16))
    model.load_state_dict(trained.state_dict())
    if "--fixed" in sys.argv:
        torch.compiler.reset()
    compiled(torch.rand(64, 16))
