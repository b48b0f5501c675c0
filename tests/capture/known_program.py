"""Does what a log reveals without a judge, or its healthy twin.

`python -m tests.capture.known_program sick|healthy [NAME...]`

Each function has a fault if `is_sick`, and is well otherwise.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch._inductor import lowering
from torch.utils.checkpoint import checkpoint


@torch.library.custom_op("known_program::transposed", mutates_args=())
def transposed(x: Tensor, lies: bool) -> Tensor:
    """Return a copy whose strides are not those that its fake kernel promises, if `lies`."""
    return x.t().contiguous().t() if lies else x.clone()


@transposed.register_fake
def _(x: Tensor, lies: bool) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("known_program::unknown", mutates_args=())
def unknown(x: Tensor) -> Tensor:
    return x * 2


@unknown.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("known_program::weighted", mutates_args=())
def weighted(x: Tensor, lies: bool) -> Tensor:
    """Return another dtype than the fake kernel promises, if `lies`."""
    weights = x.double().sigmoid()
    return weights if lies else weights.float()


@weighted.register_fake
def _(x: Tensor, lies: bool) -> Tensor:
    return torch.empty_like(x)


_library: Any = torch.library
LIBRARY = _library.Library("known_program", "FRAGMENT")


def fill(x: Tensor, out: Tensor) -> None:
    out.copy_(x)


for _name, _change in (("filled", "(a!)"), ("secretly_filled", "")):
    LIBRARY.define(f"{_name}(Tensor x, Tensor{_change} out) -> ()")
    LIBRARY.impl(_name, fill, "CPU")
    LIBRARY.impl(_name, lambda x, out: None, "Meta")


def out_of_bounds(is_sick: bool) -> None:
    @torch.compile
    def look_up(table: Tensor, rows: Tensor) -> Tensor:
        return table[rows] * 2.0

    table = torch.randn(10, 4)
    look_up(table, torch.tensor([1, 2, 3]))
    with suppress(RuntimeError):
        look_up(table, torch.tensor([1, 2, 30 if is_sick else 9]))


def other_strides(is_sick: bool) -> None:
    @torch.compile
    def turn(x: Tensor) -> Tensor:
        turned: Tensor = transposed(x.sin(), is_sick)
        return turned.cos() + 1

    with suppress(AssertionError):
        turn(torch.randn(4, 5))


def no_lowering(is_sick: bool) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise NotImplementedError("planted: no lowering")

    @torch.compile
    def double(x: Tensor) -> Tensor:
        x = x.sin()
        result: Tensor = unknown(x) + 1
        return result

    if is_sick:
        lowering.lowerings[torch.ops.known_program.unknown.default] = refuse
    with suppress(Exception):
        double(torch.randn(4, 5))


def changed_saved_tensor(is_sick: bool) -> None:
    """Change an input between two forward passes and their backward passes, past autograd's versions."""
    layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    step, optimizer = torch.compile(layers), torch.optim.SGD(layers.parameters(), lr=0.1)
    for number in range(3):
        first, second = torch.randn(4, 8), torch.randn(4, 8)
        losses = [step(x).square().mean() for x in (first, second)]
        if is_sick and number == 1:
            second.data.mul_(2)
        for loss in losses:
            torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad()


def changed_factor(is_sick: bool) -> None:
    """Change an input in between, where the forward pass saves only its inputs."""
    scale = torch.randn(8)

    @torch.compile
    def product(x: Tensor, factor: Tensor) -> Tensor:
        return x * factor

    loss = product(torch.randn(8, requires_grad=True), scale).sum()
    if is_sick:
        scale.data.add_(1)
    torch.autograd.backward(loss)


def other_recomputation(is_sick: bool) -> None:
    """Recompute blocks with dropout in the backward pass, with other random numbers if `is_sick`."""

    @torch.compile
    def block(weight: Tensor, x: Tensor) -> Tensor:
        hidden = torch.nn.functional.dropout(torch.relu(x @ weight))
        return hidden @ weight

    weights = [torch.randn(8, 8, requires_grad=True) for _ in range(2)]
    for _ in range(2):
        x = torch.randn(4, 8, requires_grad=True)
        for weight in weights:
            x = checkpoint(block, weight, x, use_reentrant=False, preserve_rng_state=not is_sick)
        torch.autograd.backward(x.square().mean())


def drawn_again(is_sick: bool) -> None:
    """The partitioner recomputes random numbers, or saves what they follow from, as it does by default."""
    layer = torch.nn.Linear(32, 32)

    @torch.compile
    def noisy(x: Tensor) -> Tensor:
        return torch.nn.functional.dropout(torch.relu(layer(x)))

    with torch._functorch.config.patch(activation_memory_budget=0.0 if is_sick else 1.0):
        for _ in range(4):
            torch.autograd.backward(noisy(torch.randn(16, 32)).sum())


def nan_constant(is_sick: bool) -> None:
    @torch.compile
    def marked(x: Tensor) -> Tensor:
        return torch.where(x > 0, x, float("nan") if is_sick else -1.0) * 2

    marked(torch.randn(4, 5))


def unwritten_elements(is_sick: bool) -> None:
    """Write all rows of a tensor but the last one, if `is_sick`."""

    @torch.compile
    def sums(x: Tensor) -> Tensor:
        total = torch.empty_like(x)
        for row in range(len(x) - is_sick):
            total[row] = x[: row + 1].sum(0)
        return total * 2

    sums(torch.randn(4, 5))


def infinite_constant(is_sick: bool) -> None:
    """Scale by a constant that is infinite, so that one kernel writes infinities and NaN."""

    @torch.compile
    def sharp(x: Tensor) -> tuple[Tensor, Tensor]:
        scaled = x * (float("inf") if is_sick else 2.0)
        return scaled, scaled - scaled.amax()

    sharp(torch.randn(4, 4).abs())


def spread_of_one(is_sick: bool) -> None:
    """Take the standard deviation of a single row, which the backward pass recomputes."""
    layer = torch.nn.Linear(8, 8)

    @torch.compile
    def normed(x: Tensor) -> Tensor:
        hidden = layer(x)
        loss: Tensor = ((hidden - hidden.mean(0)) / (hidden.std(0) + 1e-5)).pow(2).sum()
        return loss

    for _ in range(2):
        torch.autograd.backward(normed(torch.randn(1 if is_sick else 4, 8)))


def unwritten_result(is_sick: bool) -> None:
    """Fill a tensor with an operator whose schema does not say that it changes its argument, if `is_sick`."""
    write = torch.ops.known_program.secretly_filled if is_sick else torch.ops.known_program.filled

    @torch.compile
    def filled(x: Tensor) -> tuple[Tensor, Tensor]:
        copy = torch.empty_like(x)
        write(x, copy.view(4, 5))
        return copy.flatten().unsqueeze(0), x + 1

    filled(torch.randn(4, 5))


def left_out_operator(is_sick: bool) -> None:
    """Write into an input by such an operator, so that nothing in the graph depends on it."""
    write = torch.ops.known_program.secretly_filled if is_sick else torch.ops.known_program.filled

    @torch.compile
    def cached(x: Tensor, cache: Tensor) -> Tensor:
        write(x, cache)
        return cache.sum(0) + 1

    cached(torch.randn(4, 5), torch.zeros(4, 5))


def uninitialised_read(is_sick: bool) -> None:
    """Multiply the tensor of such an operator, in a product that may make NaN of what the memory holds."""
    write = torch.ops.known_program.secretly_filled if is_sick else torch.ops.known_program.filled

    @torch.compile
    def multiplied(x: Tensor) -> Tensor:
        copy = torch.empty_like(x)
        write(x, copy)
        return copy @ x

    multiplied(torch.randn(8, 8))


def misread_dtype(is_sick: bool) -> None:
    """Read the result of an operator that returns another dtype than it promises, if `is_sick`."""

    @torch.compile
    def root(x: Tensor) -> Tensor:
        for _ in range(2):
            weights: Tensor = weighted(x, is_sick)
            x = torch.sqrt(weights) * x
        return x

    root(torch.randn(16, 16))


class Result:
    """Holds the output of a step."""

    def __init__(self, output: Tensor, is_sick: bool) -> None:
        self.output = output
        self.itself = self if is_sick else None


def reference_cycle(is_sick: bool) -> None:
    """Keep each output in an object that refers to itself, if `is_sick`, until the garbage collector runs."""

    @torch.compile
    def twice(x: Tensor) -> Tensor:
        return x.sin() * 2

    gc.disable()  # so that collections come at known steps
    for number in range(8):
        Result(twice(torch.randn(512, 512)), is_sick)
        time.sleep(0.11)  # records are written every few steps
        if number % 4 == 3:
            gc.collect()
    gc.enable()


PROGRAMS: dict[str, Callable[[bool], None]] = {
    one.__name__: one
    for one in (
        reference_cycle,  # before an optimizer defines the steps
        out_of_bounds,
        other_strides,
        no_lowering,
        changed_saved_tensor,
        changed_factor,
        other_recomputation,
        drawn_again,
        nan_constant,
        unwritten_elements,
        infinite_constant,
        spread_of_one,
        unwritten_result,
        left_out_operator,
        uninitialised_read,
        misread_dtype,
    )
}


def main(what: str, *only: str) -> None:
    torch.manual_seed(0)
    for program in [PROGRAMS[one] for one in only] or PROGRAMS.values():
        program(what == "sick")


if __name__ == "__main__":
    main(*sys.argv[1:])
