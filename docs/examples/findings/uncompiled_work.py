"""The program counts the answers of the model in a loop of Python, which takes longer than the model itself.

$ stepscope run uncompiled_work.py
warning: Work outside of compiled code takes 99 % of a step (16.3 ms of 16.4 ms), between the compiled call at
uncompiled_work.py:30 and the same call of the next step, mostly at uncompiled_work.py:24
"""

import sys

import torch
from torch import Tensor


@torch.compile
def score(x: Tensor, weight: Tensor) -> Tensor:
    return x @ weight


def confusion(answers: Tensor, labels: Tensor) -> Tensor:
    if "--fixed" in sys.argv:
        return torch.bincount(4 * labels + answers, minlength=16).view(4, 4)
    counts = torch.zeros(4, 4)
    for answer, label in zip(answers, labels, strict=True):
        counts[label, answer] += 1
    return counts


x, weight, labels = torch.randn(2000, 8), torch.randn(8, 4), torch.randint(4, (2000,))
for _ in range(10):
    scores = score(x, weight)
    counts = confusion(scores.argmax(1), labels)
print(counts)
