"""Gradients of several batches for one update, scaled, under autocast and clipped."""

from __future__ import annotations

import torch

ITERATIONS, BATCHES = 5, 3


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 10))
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, ITERATIONS)
    for _ in range(ITERATIONS):
        for _ in range(BATCHES):
            with torch.autocast("cpu", torch.bfloat16):
                logits = compiled(torch.randn(16, 32))
                loss = torch.nn.functional.cross_entropy(logits, torch.randint(0, 10, (16,))) / BATCHES
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
    print(f"LOSS {loss.item():.10f} {sum(p.abs().sum().item() for p in model.parameters()):.8f}")
    print(f"ITERATIONS {ITERATIONS}")


if __name__ == "__main__":
    main()
