"""Programs whose kernels are slow, each with a fast twin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

import stepscope
from tests.slowness.clock import STEPS, clock, infer, mean_seconds, same_batch


class Transposed(nn.Module):
    """A model whose layout makes a copy necessary, or whose layout is the one that is needed."""

    def __init__(self, slow: bool) -> None:
        super().__init__()
        self.slow, self.weight = slow, nn.Parameter(torch.randn(64, 64) * 0.1)

    def forward(self, x: Tensor) -> Tensor:
        if self.slow:
            x = x.permute(0, 2, 1).contiguous()
        out: Tensor = x.reshape(-1, 64) @ self.weight
        return out


def contiguous_copies(slow: bool) -> None:
    x = torch.randn(64, 64, 4096) if slow else torch.randn(64, 4096, 64)
    with torch._inductor.config.patch({"cpp.enable_kernel_profile": True}), torch.profiler.profile() as profile:
        clock.run(infer(Transposed(slow), same_batch(x)))
    clock.plant_profiled(profile, "cpp_fused_clone")


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.projection = nn.Linear(64, 192)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.projection(x).chunk(3, -1)
        out: Tensor = (query @ key.transpose(-1, -2)).softmax(-1) @ value
        return out


def growing_sequence(slow: bool) -> None:
    """The share is what the last steps take more than the first ones."""
    model = Attention()
    torch._dynamo.config.automatic_dynamic_shapes = True

    def batches() -> Iterator[Tensor]:
        clock.planted.append(0.0)
        for step in range(STEPS):
            batch = torch.randn(2, 256 + (96 * step if slow else 32 * (step % 3)), 64)
            torch._dynamo.mark_dynamic(batch, 1)
            yield batch

    clock.run(infer(model, batches()))
    clock.steps, clock.is_whole = clock.steps[1:], True
    first = sum(clock.steps[:3]) / 3
    clock.planted = [max(0.0, step - first) for step in clock.steps]


def slower_kernels(slow: bool) -> None:
    """In the second half, sin gets arguments so large that it needs its slow path. The share is what this half takes
    more than the first one."""
    steps = 2 * STEPS
    base = torch.randn(400_000)

    def wave(x: Tensor) -> Tensor:
        return torch.sin(x) + torch.sin(x * 1.1) + torch.cos(x * 1.2)

    def batches() -> Iterator[Tensor]:
        large = base * 1e9 if slow else base.clone()
        clock.planted.append(0.0)
        for step in range(steps):
            yield large if step >= STEPS else base

    compiled = torch.compile(wave)

    def run() -> Iterator[None]:
        for batch in batches():
            compiled(batch)
            yield

    clock.run(run())
    early, clock.steps, clock.is_whole = sorted(clock.steps[1:STEPS]), clock.steps[STEPS:], True
    clock.planted = [max(0.0, step - early[len(early) // 2]) for step in clock.steps]


def slow_shape(slow: bool) -> None:
    """Every other batch has a length that is a prime number, for which a Fourier transform takes long. The share is
    what these batches take more than the others, which are longer."""

    def spectrum(x: Tensor) -> Tensor:
        return torch.view_as_real(torch.fft.rfft(x)).square().sum(-1)

    def batches() -> Iterator[Tensor]:
        clock.planted.append(0.0)
        made = [torch.randn(64, length) for length in (8192, 8191 if slow else 8000)]
        for batch in made:
            torch._dynamo.mark_dynamic(batch, 1)
        for step in range(2 * STEPS):
            yield made[step % 2]

    def run() -> Iterator[None]:
        for batch in batches():
            compiled(batch)
            yield

    compiled = torch.compile(spectrum)
    clock.run(run())
    clock.steps, clock.is_whole = clock.steps[2:], True
    usual = sorted(clock.steps[::2])[len(clock.steps) // 4]
    clock.planted = [max(0.0, step - usual) * (at % 2) for at, step in enumerate(clock.steps)]


def slow_choice(slow: bool) -> None:
    """The autotuner has one choice more, which computes a product four times, and a handler of the program takes the
    slowest one. The share is what the steps take more than those with the fastest choices."""
    from torch._inductor.choices import InductorChoices
    from torch._inductor.select_algorithm import ExternKernelChoice, add_preprocessing_fn
    from torch._inductor.virtualized import V

    def four_products(rows: Tensor, factors: Tensor, *, out: Tensor) -> Tensor:
        for _ in range(4):
            torch.bmm(rows, factors, out=out)
        return out

    class Slowest(InductorChoices):
        def override_best_choice(self, best_choice: Any, timings: dict[Any, float]) -> Any:
            return max(timings, key=lambda choice: timings[choice])

    repeated: Any = ExternKernelChoice(four_products, name="four_products")
    add_preprocessing_fn(lambda choices: [*choices, repeated.bind(choices[0].input_nodes, choices[0].layout)])
    factors = nn.ParameterList(torch.randn(8, 256, 256) * 0.05 for _ in range(6))

    class Products(nn.Module):
        def forward(self, rows: Tensor) -> Tensor:
            for one in factors:
                rows = torch.bmm(rows, one)
            return rows

    x = torch.randn(8, 128, 256)
    with torch._inductor.config.patch(max_autotune=True), torch.no_grad():
        with V.set_choices_handler(Slowest()) if slow else nullcontext():
            clock.run(infer(Products(), same_batch(x)))
        stepscope.configure(level="off")
        torch.compiler.reset()
        compiled = torch.compile(Products())
        with torch._inductor.config.patch(comment_origin=True):  # another key of the cache, which ignores the handler
            products = mean_seconds(lambda: compiled(x))
    clock.planted = [max(0.0, step - products) for step in clock.steps]
