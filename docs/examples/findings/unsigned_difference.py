"""The function subtracts two images in uint8, whose difference wraps around where the second one is brighter, and only
then converts it to float32.

$ stepscope run unsigned_difference.py
info: A difference of two uint8 tensors (unsigned_difference.py:19) wraps around where it is negative, before it becomes
float32
"""

import sys

import torch
from torch import Tensor


@torch.compile
def motion(image: Tensor, before: Tensor) -> Tensor:
    if "--fixed" in sys.argv:
        return (image.float() - before.float()).square().mean()
    return (image - before).float().square().mean()


image = torch.randint(0, 256, (3, 8, 8), dtype=torch.uint8)
for _ in range(3):
    before, image = image, torch.randint(0, 256, (3, 8, 8), dtype=torch.uint8)
    print(f"{motion(image, before).item():.0f}")
