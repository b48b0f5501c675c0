"""Programs around single operators: fallbacks, custom operators, mutation, unusual dtypes."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as distributed
import torch.distributed._functional_collectives as collectives
from torch import Tensor
from torch._C._distributed_c10d import HashStore
from torch.nn import functional

from tests.programs import Step, program


@torch.library.custom_op("stepscope_tests::add_one_and_double", mutates_args={"target"})
def add_one_and_double(source: Tensor, target: Tensor) -> Tensor:
    target.add_(1)
    return source * 2


@add_one_and_double.register_fake
def _(source: Tensor, target: Tensor) -> Tensor:
    return torch.empty_like(source)


@torch.library.custom_op("stepscope_tests::split_signs", mutates_args=())
def split_signs(source: Tensor) -> tuple[Tensor, Tensor]:
    return source.clamp(min=0), source.clamp(max=0)


@split_signs.register_fake
def _(source: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(source), torch.empty_like(source)


@program()
def custom_mutating() -> Step:
    @torch.compile
    def run(value: Tensor) -> Any:
        target = torch.zeros(8, 8)
        doubled = add_one_and_double(value, target)
        return doubled @ target, target

    value = torch.randn(8, 8)
    return lambda: run(value)


@program()
def custom_multi_output() -> Step:
    @torch.compile
    def run(value: Tensor) -> Tensor:
        positive, negative = split_signs(value.sin())
        product: Tensor = positive @ negative
        return product

    value = torch.randn(8, 8)
    return lambda: run(value)


@program()
def foreach() -> Step:
    @torch.compile
    def run(values: list[Tensor]) -> Any:
        return torch._foreach_add(torch._foreach_mul(values, 2.0), 1.0)

    values = [torch.randn(8, 8) for _ in range(3)]
    return lambda: run(values)


@program()
def scatter() -> Step:
    @torch.compile
    def run(value: Tensor, index: Tensor) -> Any:
        masked = value.clone()
        masked[index] = 0
        put = masked.index_put((index,), torch.ones(3, 8), accumulate=True)
        columns = index.view(3, 1).expand(3, 8)
        reduced = torch.zeros(8, 8).scatter_reduce(0, columns, torch.ones(3, 8), "sum")
        scattered = value.scatter(0, columns, 5.0)
        ordered, order = value.sort()
        return masked, put, reduced @ value, scattered, torch.nonzero(value > 0), ordered, order

    value, index = torch.randn(8, 8), torch.tensor([1, 2, 3])
    return lambda: run(value, index)


@program()
def dropout() -> Step:
    @torch.compile
    def run(value: Tensor) -> Tensor:
        return functional.dropout(value @ value, 0.5)

    value = torch.randn(8, 8)
    return lambda: run(value)


@program()
def inplace_input() -> Step:
    @torch.compile
    def run(value: Tensor) -> Tensor:
        value.add_(1)
        return value @ value

    value = torch.randn(8, 8)
    return lambda: (run(value), value.clone())


@program()
def integers() -> Step:
    @torch.compile
    def run(value: Tensor, mask: Tensor) -> Any:
        kept = torch.where(mask, value * 3, -value)
        return kept.cumsum(0), kept.sum(), (kept % 7).to(torch.uint8), mask.any(dim=0)

    value = torch.randint(-(2**40), 2**40, (8, 8))
    return lambda: run(value, value > 0)


@program()
def complex_numbers() -> Step:
    @torch.compile
    def run(value: Tensor) -> Any:
        spectrum = torch.fft.rfft(value)
        return spectrum * (1 + 2j), spectrum.abs().sum(0)

    value = torch.randn(8, 8)
    return lambda: run(value)


@program()
def collective() -> Step:
    if not distributed.is_initialized():
        distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    world = distributed.GroupMember.WORLD
    assert world is not None

    @torch.compile
    def run(value: Tensor) -> Any:
        total = collectives.all_reduce(value * 2, "sum", world)
        return total @ value

    value = torch.randn(8, 8)
    return lambda: run(value)
