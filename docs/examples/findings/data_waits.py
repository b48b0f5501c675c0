"""The data set parses the text of a sample each time that it is asked for it, while the model waits.

$ stepscope run data_waits.py
warning: Waiting for the next batch of a DataLoader takes 95 % of a step (18.1 ms of 18.9 ms), mostly in
Python code up to data_waits.py:18
"""

import sys

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

LINES = [" ".join(str(0.1 * i) for i in range(5000))] * 320


def parse(line: str) -> Tensor:
    return torch.tensor([float(word) for word in line.split()])


class Samples(Dataset[Tensor]):
    def __init__(self) -> None:
        self.parsed = [parse(line) for line in LINES] if "--fixed" in sys.argv else None

    def __len__(self) -> int:
        return len(LINES)

    def __getitem__(self, index: int) -> Tensor:
        return self.parsed[index] if self.parsed else parse(LINES[index])


@torch.compile
def layer(x: Tensor, weight: Tensor) -> Tensor:
    return x @ weight


weight = torch.randn(5000, 4)
for batch in DataLoader(Samples(), batch_size=8):
    layer(batch, weight)
