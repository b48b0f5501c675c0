"""Threads that call compiled functions: one function that is compiled before, and one that each thread compiles."""

from __future__ import annotations

import threading

import torch

THREADS, CALLS = 3, 5


def shared(x: torch.Tensor) -> torch.Tensor:
    return (x @ x.T).relu().sum(0)


def main() -> None:
    compiled = torch.compile(shared)
    compiled(torch.ones(8, 8))
    results: dict[int, float] = {}

    def work(number: int) -> None:
        own = torch.compile(lambda x: torch.tanh(x * number).cumsum(0))
        generator = torch.Generator().manual_seed(number)
        total = 0.0
        for _ in range(CALLS):
            value = compiled(torch.randn(8, 8, generator=generator))
            total += own(value).sum().item()
        results[number] = total

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("SUMS", " ".join(f"{results[number]:.8f}" for number in range(THREADS)))
    print(f"ITERATIONS {1 + THREADS * CALLS}")


if __name__ == "__main__":
    main()
