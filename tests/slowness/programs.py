"""Programs with a planted slowness, each with a fast twin. Each measures with its own clock what stepscope should name.

python -m tests.slowness.programs PROGRAM slow|fast    prints {"share": ..., "step_ms": ...} as its last line
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import stepscope

STEPS, WARM = 16, 2
WIDTH, ROWS = 384, 768


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


def python_work(rounds: int) -> float:
    return sum(math.sqrt(number) for number in range(rounds))


class Layers(nn.Module):
    def __init__(self, count: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def train(model: nn.Module, batches: Iterator[Tensor]) -> Iterator[None]:
    """Train a compiled model; yield after each step."""
    torch.manual_seed(0)
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for batch in batches:
        compiled(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        yield


def same_batch(batch: Tensor) -> Iterator[Tensor]:
    clock.planted.append(0.0)
    for _ in range(STEPS):
        yield batch


@torch.compiler.disable  # type: ignore[untyped-decorator]
def log_statistics(rounds: int) -> None:
    planted(lambda: python_work(rounds))


class Logging(Layers):
    """A model that writes statistics in each forward pass, so that Dynamo breaks the graph."""

    def __init__(self, slow: bool) -> None:
        super().__init__()
        self.rounds = 400_000 if slow else 0

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.layers[0](x))
        if self.rounds:
            log_statistics(self.rounds)
        return torch.relu(self.layers[1](x))


def break_in_loop(slow: bool) -> None:
    clock.run(train(Logging(slow), same_batch(torch.randn(ROWS, WIDTH))))


def metrics_in_loop(slow: bool) -> None:
    """The program writes metrics between the backward pass and the step of the optimizer."""
    model = Layers()
    compiled, optimizer = torch.compile(model), torch.optim.SGD(model.parameters(), lr=1e-4)

    def steps() -> Iterator[None]:
        for batch in same_batch(torch.randn(ROWS, WIDTH)):
            compiled(batch).square().mean().backward()
            if slow:
                planted(lambda: python_work(800_000))
            optimizer.step()
            optimizer.zero_grad()
            yield

    clock.run(steps())


def function_in_python(slow: bool) -> None:
    """A graph break within a block keeps a function from being compiled; its twin has no such break."""

    def search(x: Tensor) -> Tensor:
        with torch.autograd.profiler.record_function("search") if slow else nullcontext():
            for _ in range(300):
                x = torch.tanh(x * (2 if slow and x.max().item() < 0.5 else 1))
        return x

    model, compiled, batch = torch.compile(Layers()), torch.compile(search), torch.randn(WIDTH, WIDTH)[:16]

    def steps() -> Iterator[None]:
        with torch.no_grad():
            for x in same_batch(batch):
                model(x)
                planted(partial(compiled, x))
                yield

    clock.run(steps())


class Slow(Dataset[Tensor]):
    def __init__(self, slow: bool) -> None:
        self.slow = slow

    def __len__(self) -> int:
        return STEPS * 8

    def __getitem__(self, index: int) -> Tensor:
        if self.slow:
            time.sleep(0.004)
        return torch.full((ROWS // 8, WIDTH), 0.01 * index)


def loaded(slow: bool) -> Iterator[Tensor]:
    batches = iter(DataLoader(Slow(slow), batch_size=8, collate_fn=torch.cat))
    clock.planted.append(0.0)
    for _ in range(STEPS):
        began = time.perf_counter()
        batch = next(batches)
        clock.planted[-1] += time.perf_counter() - began
        yield batch


def data_loader(slow: bool) -> None:
    clock.run(train(Layers(8), loaded(slow)))


class Chosen(Layers):
    """A model that picks elements by a mask, whose number the host must know, or multiplies by the mask."""

    def __init__(self, slow: bool) -> None:
        super().__init__()
        self.slow = slow

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.layers[0](x))
        mean = x[x > 0].mean() if self.slow else (x * (x > 0)).sum() / (x > 0).sum()
        return y * mean


def sync_in_loop(slow: bool) -> None:
    """The share is that of the operators that pick the elements, by PyTorch's profiler."""
    with torch.profiler.profile() as profile:
        clock.run(infer(Chosen(slow), same_batch(torch.randn(4 * ROWS, WIDTH))))
    clock.plant_profiled(profile, "aten::index")


class Scaled(Layers):
    """A model that is compiled for each value of an attribute, or gets it as a tensor."""

    def __init__(self, slow: bool) -> None:
        super().__init__()
        self.slow, self.factor, self.tensor = slow, 0, torch.ones(())

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (self.factor if self.slow else self.tensor)


def recompile_each_step(slow: bool) -> None:
    """The share is that of the recompiles in the whole run."""
    torch._dynamo.config.recompile_limit = 2 * STEPS
    torch._dynamo.config.automatic_dynamic_shapes = False
    model = Scaled(slow)

    def batches() -> Iterator[Tensor]:
        for step, batch in enumerate(same_batch(torch.randn(ROWS, WIDTH))):
            model.factor = step % (STEPS - 4)
            model.tensor = torch.tensor(1.0 + step)
            yield batch

    clock.run(infer(model, batches()))
    usual, clock.is_whole = sorted(clock.steps)[1], True
    clock.planted = [0.0, *(step - usual for step in clock.steps[1:])]


class Small(nn.Module):
    """Many products of small matrices that cannot be fused, or a few of large ones."""

    def __init__(self, slow: bool) -> None:
        super().__init__()
        self.count = 400 if slow else 8

    def forward(self, x: Tensor) -> Tensor:
        first = x
        for _ in range(self.count):
            x = x @ first
        return x


def host_bound(slow: bool) -> None:
    """The share is what remains without what calling any compiled function takes, and without the products themselves,
    which one batched product computes as well."""
    size, count = (8, 400) if slow else (512, 8)
    x = torch.eye(size)
    clock.run(infer(Small(slow), same_batch(x)))
    stepscope.configure(level="off")
    batch, plain = x.expand(count, size, size).contiguous(), torch.compile(lambda value: value @ value)
    with torch.no_grad():
        products, calls = mean_seconds(lambda: torch.bmm(batch, batch)), mean_seconds(lambda: plain(x))
    clock.planted = [max(0.0, step - products - calls) for step in clock.steps]


def mean_seconds(work: Callable[[], object]) -> float:
    work()
    began = time.perf_counter()
    for _ in range(STEPS):
        work()
    return (time.perf_counter() - began) / STEPS


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


def slow_choice(slow: bool) -> None:
    """A handler of the program takes the slowest of the choices that the autotuner measured. The share is what the
    products take more than those of the library, which is the faster choice."""
    from torch._inductor.choices import InductorChoices
    from torch._inductor.virtualized import V

    class Slowest(InductorChoices):
        def override_best_choice(self, best_choice: Any, timings: dict[Any, float]) -> Any:
            return max(timings, key=lambda choice: timings[choice])

    settings = {"max_autotune": True, "max_autotune_gemm_backends": "CPP,ATEN", "freezing": True}
    layers = nn.Sequential(*(nn.Linear(512, 512, bias=False) for _ in range(6))).eval()
    x = torch.randn(256, 512)
    with torch._inductor.config.patch(settings), V.set_choices_handler(Slowest()) if slow else nullcontext():
        clock.run(infer(layers, same_batch(x)))
    with torch.no_grad():
        products = mean_seconds(lambda: layers(x))
    clock.planted = [max(0.0, step - products) for step in clock.steps]


def slow_rank(slow: bool) -> None:
    """Rank 1 is slow. The share is what it does more than rank 0."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    late = slow and dist.get_rank() == 1
    model, x = Layers(2), torch.randn(ROWS, WIDTH)
    compiled = torch.compile(model)

    def steps() -> Iterator[None]:
        clock.planted.append(0.0)
        with torch.no_grad():
            for _ in range(STEPS):
                if late:
                    planted(lambda: time.sleep(0.02))
                dist.all_reduce(compiled(x))
                stepscope.step()
                yield

    clock.run(steps())
    dist.destroy_process_group()


def infer(model: nn.Module, batches: Iterator[Tensor]) -> Iterator[None]:
    """Run a compiled model without gradients; yield after each step."""
    torch.manual_seed(0)
    compiled = torch.compile(model)
    with torch.no_grad():
        for batch in batches:
            compiled(batch)
            yield


PROGRAMS: dict[str, Callable[[bool], None]] = {
    "break_in_loop": break_in_loop,
    "metrics_in_loop": metrics_in_loop,
    "function_in_python": function_in_python,
    "data_loader": data_loader,
    "sync_in_loop": sync_in_loop,
    "recompile_each_step": recompile_each_step,
    "host_bound": host_bound,
    "contiguous_copies": contiguous_copies,
    "growing_sequence": growing_sequence,
    "slower_kernels": slower_kernels,
    "slow_choice": slow_choice,
    "slow_rank": slow_rank,
}


def main() -> None:
    torch.set_num_threads(1)
    PROGRAMS[sys.argv[1]](sys.argv[2] == "slow")
    print(json.dumps(clock.answer()))


if __name__ == "__main__":
    main()
