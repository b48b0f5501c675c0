"""Two ranks of which one takes another branch in one step, so that it compiles once more."""

from __future__ import annotations

import os
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import _functional_collectives as collectives

RANKS = 2
WORLD = list(range(RANKS))


@torch.compile
def layer(x: Tensor, weights: Tensor, is_last: bool) -> Tensor:
    hidden = collectives.all_reduce(x @ weights, "sum", WORLD)
    if is_last:
        hidden = hidden.softmax(dim=-1)
    return collectives.all_gather_tensor(hidden, 0, WORLD)


def work(rank: int, store: str) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(RANKS))
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    torch.manual_seed(rank)
    for step in range(4):
        layer(torch.randn(32, 32), torch.randn(32, 32), rank == RANKS - 1 and step == 2)
    dist.destroy_process_group()


def main() -> None:
    context = get_context("spawn")
    with TemporaryDirectory() as folder:
        workers = [context.Process(target=work, args=(rank, str(Path(folder) / "store"))) for rank in range(RANKS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


if __name__ == "__main__":
    main()
