"""A hook that steers the model is added after the first compiled call, which has compiled the model without it.

$ stepscope run changed_hooks.py
warning: The forward hook steer (changed_hooks.py:21) of model.1 was added after the compile, and compiled code does not
run it
"""

import sys
from typing import Any

import torch
from torch import nn

torch.manual_seed(0)
if "--fixed" in sys.argv:
    torch._dynamo.config.skip_nnmodule_hook_guards = False
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
compiled = torch.compile(model)


def steer(module: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
    return output + 4


with torch.no_grad():
    before = compiled(torch.ones(8, 16)).mean()
    model[1].register_forward_hook(steer)
    after = [compiled(torch.ones(8, 16)).mean() for _ in range(3)]
print("the hook has an effect:", any(one != before for one in after))
