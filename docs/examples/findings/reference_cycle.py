"""Each prediction keeps one of its own methods, and the method refers to the prediction, so that the scores are not
freed before the garbage collector runs.

$ stepscope run reference_cycle.py
warning: Up to 21.0 MB wait for the garbage collector: a reference cycle through the attribute scores of Prediction
keeps buf0 of graph 0/0 inference (reference_cycle.py:18)
"""

import gc
import sys
import time

import torch
from torch import Tensor


@torch.compile
def model(x: Tensor, w: Tensor) -> Tensor:
    return x @ w


class Prediction:
    def __init__(self, scores: Tensor) -> None:
        self.scores = scores
        self.best = self.find_best() if "--fixed" in sys.argv else self.find_best

    def find_best(self) -> Tensor:
        return self.scores.argmax(-1)


w = torch.randn(64, 1024)
for step in range(40):
    Prediction(model(torch.randn(512, 64), w))
    time.sleep(0.03)  # until the next request
    if step % 10 == 9:
        gc.collect()
