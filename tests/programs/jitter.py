"""Adds noise to an activation: other noise in each run, or with ``healthy`` the same."""

from __future__ import annotations

import os
import sys

import torch

SEED = 7 if "healthy" in sys.argv else int.from_bytes(os.urandom(4), "little")


@torch.library.custom_op("stepscope_tests::jitter", mutates_args=())
def jitter(x: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator()
    generator.manual_seed(SEED)
    return x + 1e-6 * torch.rand(x.shape, generator=generator)


@jitter.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def main() -> None:
    torch.manual_seed(0)
    first, second = torch.nn.Linear(16, 32), torch.nn.Linear(32, 8)
    compiled = torch.compile(lambda x: second(jitter(first(x))))
    with torch.no_grad():
        compiled(torch.randn(4, 16))


if __name__ == "__main__":
    main()
