"""Programs with a planted slowness, each with a fast twin. Each measures with its own clock what stepscope should name.

python -m tests.slowness.programs PROGRAM slow|fast    prints {"share": ..., "step_ms": ...} as its last line
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import stepscope
from tests.slowness.clock import STEPS, clock, infer, mean_seconds, planted, same_batch
from tests.slowness.kernels import contiguous_copies, growing_sequence, slow_choice, slow_shape, slower_kernels

WIDTH, ROWS = 384, 768


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


@torch.compiler.disable  # type: ignore[untyped-decorator]
def log_statistics(rounds: int) -> None:
    planted(lambda: python_work(rounds))


class Logging(Layers):
    """A model that writes statistics in each forward pass, so that Dynamo breaks the graph."""

    def __init__(self, slow: bool) -> None:
        super().__init__()
        self.rounds = 400_000 if slow else 0

    def forward(self, x: Tensor) -> Tensor:
        first, *others = self.layers
        x = torch.relu(first(x))
        if self.rounds:
            log_statistics(self.rounds)
        for layer in others:
            x = torch.relu(layer(x))
        return x


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
    "slow_shape": slow_shape,
    "slow_rank": slow_rank,
}


def main() -> None:
    torch.set_num_threads(1)
    with suppress(PermissionError):  # other programs on the machine would otherwise be a part of every step
        os.setpriority(os.PRIO_PROCESS, 0, -15)
    PROGRAMS[sys.argv[1]](sys.argv[2] == "slow")
    print(json.dumps(clock.answer()))


if __name__ == "__main__":
    main()
