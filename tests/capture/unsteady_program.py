"""Adds many numbers into few places, again and again from the same inputs: with several threads in an order that is not
fixed, and with `healthy` in one thread. Prints how many different results it got.

python -m tests.capture.unsteady_program sick|healthy
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor

CALLS, VALUES, PLACES = 12, 400_000, 4


def pooled(values: Tensor, index: Tensor) -> Tensor:
    return torch.zeros(PLACES).index_add(0, index, values.sin())


def main(what: str) -> None:
    torch.set_num_threads(8 if what == "sick" else 1)
    torch.manual_seed(0)
    values, index = torch.randn(VALUES), torch.randint(PLACES, (VALUES,))
    compiled = torch.compile(pooled)
    results = {tuple(compiled(values, index).tolist()) for _ in range(CALLS)}
    sys.stdout.write(f"{len(results)}\n")


if __name__ == "__main__":
    main(sys.argv[1])
