"""A custom operator has no fake implementation, so that the compiler cannot know the shape of its result.

$ stepscope run compile_failure.py
critical: Compiling layer (compile_failure.py:24) failed: TorchRuntimeError: RuntimeError when making fake tensor call:
RuntimeError('There was no fake impl registered for <CustomOpDef(example::clip)>. This is necessary for
torch.compile/export/fx tracing to work. Please use `clip.register_fake` to add an fake impl.'); the program ended
"""

import sys

import torch
from torch import Tensor


@torch.library.custom_op("example::clip", mutates_args=())
def clip(x: Tensor) -> Tensor:
    return x.clamp(-1, 1)


if "--fixed" in sys.argv:
    clip.register_fake(torch.empty_like)


@torch.compile(fullgraph=True)
def layer(x: Tensor, weight: Tensor) -> Tensor:
    x = clip(x @ weight)
    return x


for _ in range(3):
    layer(torch.randn(16, 8), torch.randn(8, 4))
