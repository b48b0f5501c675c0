"""A generator and a discriminator, each with an optimizer of its own; both are updated in every iteration."""

from __future__ import annotations

import torch
from torch.nn.functional import binary_cross_entropy_with_logits as judge

ITERATIONS = 6


def main() -> None:
    torch.manual_seed(0)
    generator = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16))
    discriminator = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.LeakyReLU(0.2), torch.nn.Linear(32, 1))
    of_generator = torch.optim.Adam(generator.parameters(), 2e-3)
    of_discriminator = torch.optim.Adam(discriminator.parameters(), 2e-3)
    make, look = torch.compile(generator), torch.compile(discriminator)
    ones, zeros = torch.ones(32, 1), torch.zeros(32, 1)
    for _ in range(ITERATIONS):
        fake = make(torch.randn(32, 8))
        real = torch.randn(32, 16) * 0.5 + 1.0
        of_discriminator.zero_grad()
        lost = judge(look(real), ones) + judge(look(fake.detach()), zeros)
        lost.backward()
        of_discriminator.step()
        of_generator.zero_grad()
        fooled = judge(look(fake), ones)
        fooled.backward()
        of_generator.step()
    print(f"LOSS {lost.item():.10f} {fooled.item():.10f}")
    print(f"ITERATIONS {ITERATIONS}")


if __name__ == "__main__":
    main()
