"""The workers open an archive before they read from it, and each epoch starts them anew.

$ stepscope run restarted_workers.py
warning: Starting the workers of a DataLoader (restarted_workers.py:33) again 5 times, and waiting for their
first batches, takes 97 % of the run without compiles (2.71 s of 2.79 s)
"""

import sys
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader


def open_archive(_: int) -> None:
    time.sleep(0.5)


@torch.compile
def layer(x: Tensor, weight: Tensor) -> Tensor:
    return x @ weight


weight, keeps = torch.randn(64, 4), "--fixed" in sys.argv
rows: Any = [np.full(64, number, np.float32) for number in range(256)]
loader: DataLoader[Any] = DataLoader(
    rows, 8, num_workers=2, collate_fn=np.stack, worker_init_fn=open_archive, persistent_workers=keeps
)
for _ in range(6):
    for batch in loader:
        layer(torch.from_numpy(batch), weight)
