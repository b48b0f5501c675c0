"""What planted programs measure themselves, and the loops that they share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

STEPS, WARM = 16, 2


class Clock:
    """Sums up the seconds that a program spends in the part that it plants, per step."""

    def __init__(self) -> None:
        self.planted: list[float] = []
        self.steps: list[float] = []
        self.is_whole = False
        """Whether the share is that of all steps."""

    def run(self, steps: Iterator[None]) -> None:
        began = time.perf_counter()
        for _ in steps:
            now = time.perf_counter()
            self.steps.append(now - began)
            began = now
            self.planted.append(0.0)

    def answer(self) -> dict[str, float]:
        """Return the share of the planted part in the steps of medium duration."""
        pairs = sorted(zip(self.steps[WARM:], self.planted[WARM:], strict=False))
        pairs = sorted(zip(self.steps, self.planted, strict=False)) if self.is_whole else pairs
        cut = 0 if self.is_whole else len(pairs) // 4
        middle = pairs[cut : len(pairs) - cut]
        whole = sum(step for step, _ in middle)
        return {"share": sum(part for _, part in middle) / whole, "step_ms": 1e3 * whole / len(middle)}

    def plant_profiled(self, profile: torch.profiler.profile, name: str) -> None:
        """Take as planted, for each step, the mean time of the profiler's events whose names contain `name`."""
        events = profile.events()  # type: ignore[no-untyped-call]
        found = sorted((one.time_range.start, one.time_range.end) for one in events if name in one.name)
        outer = [span for at, span in enumerate(found) if not any(before[1] >= span[1] for before in found[:at])]
        times = [end - start for start, end in outer][-(len(outer) * (STEPS - WARM) // STEPS) :]
        self.planted = [1e-6 * sum(times) / (STEPS - WARM)] * len(self.steps)


clock = Clock()


def planted(work: Callable[[], object]) -> None:
    began = time.perf_counter()
    work()
    clock.planted[-1] += time.perf_counter() - began


def same_batch(batch: Tensor) -> Iterator[Tensor]:
    clock.planted.append(0.0)
    for _ in range(STEPS):
        yield batch


def mean_seconds(work: Callable[[], object]) -> float:
    work()
    began = time.perf_counter()
    for _ in range(STEPS):
        work()
    return (time.perf_counter() - began) / STEPS


def infer(model: nn.Module, batches: Iterator[Tensor]) -> Iterator[None]:
    """Run a compiled model without gradients; yield after each step."""
    torch.manual_seed(0)
    compiled = torch.compile(model)
    with torch.no_grad():
        for batch in batches:
            compiled(batch)
            yield
