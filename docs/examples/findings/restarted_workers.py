"""The workers open an archive before they read from it, and each epoch starts them anew.

$ stepscope run restarted_workers.py
warning: Starting the workers of a DataLoader (restarted_workers.py:29) again 5 times, and waiting for their
first batches, takes 97 % of the run without compiles (2.71 s of 2.79 s)
"""

import sys
import time

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset


def open_archive(_: int) -> None:
    time.sleep(0.5)


@torch.compile
def layer(x: Tensor, weight: Tensor) -> Tensor:
    return x @ weight


weight, data = torch.randn(64, 4), TensorDataset(torch.randn(64, 64))
keeps = "--fixed" in sys.argv
loader = DataLoader(data, 8, num_workers=2, worker_init_fn=open_archive, persistent_workers=keeps)
for _ in range(6):
    for (batch,) in loader:
        layer(batch, weight)
