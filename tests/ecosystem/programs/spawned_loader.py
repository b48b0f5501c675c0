"""Training from a DataLoader whose workers are spawned, each of which imports torch and this file again."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, Dataset

BATCHES = 6


class Made(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Items made from their number."""

    def __len__(self) -> int:
        return BATCHES * 8

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(16, generator=torch.Generator().manual_seed(index)), torch.tensor(index % 4)


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    compiled = torch.compile(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for x, y in DataLoader(Made(), batch_size=8, num_workers=2, multiprocessing_context="spawn"):
        loss = torch.nn.functional.cross_entropy(compiled(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"LOSS {loss.item():.10f}")
    print(f"ITERATIONS {BATCHES}")


if __name__ == "__main__":
    main()
