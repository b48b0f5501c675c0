"""Programs with subgraphs, and one that Dynamo cuts in two."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.invoke_subgraph import mark_compile_region
from torch._higher_order_ops.while_loop import while_loop as loop

from tests.programs import Step, program


@program()
def cond() -> Step:
    @torch.compile
    def run(value: Tensor) -> Tensor:
        chosen: Tensor = torch.cond(value.sum() > 0, lambda x: (x @ x).sin(), lambda x: (x + 1) @ x, (value,))
        return chosen

    value = torch.randn(8, 8)
    return lambda: (run(value.abs()), run(-value.abs()))


def _loop(count: int) -> Step:
    @torch.compile
    def run(index: Tensor, value: Tensor) -> Any:
        return loop(  # type: ignore[no-untyped-call]
            lambda i, x: i < 3, lambda i, x: (i + 1, (x @ x).tanh()), (index, value)
        )

    index, value = torch.tensor(3 - count), torch.randn(8, 8)
    return lambda: run(index, value)


@program()
def while_loop() -> Step:
    return _loop(3)


@program()
def while_loop_zero() -> Step:
    return _loop(0)


@program()
def invoke_subgraph() -> Step:
    @mark_compile_region
    def region(value: Tensor) -> Tensor:
        return (value @ value).relu().sum(0) + value

    @torch.compile
    def run(value: Tensor) -> Tensor:
        result: Tensor = region(region(value))
        return result

    value = torch.randn(8, 8, requires_grad=True)

    def step() -> Any:
        output = run(value)
        return output.detach(), torch.autograd.grad(output.sum(), value)

    return step


@program()
def graph_break() -> Step:
    @torch.compile
    def run(value: Tensor) -> Tensor:
        value = (value @ value).relu()
        torch._dynamo.graph_break()
        return (value + 1) @ value

    value = torch.randn(8, 8)
    return lambda: run(value)


@program()
def item_branch() -> Step:
    @torch.compile
    def run(value: Tensor) -> Tensor:
        if value.sum().item() > 0:
            return value @ value
        return value + 1

    value = torch.rand(8, 8)
    return lambda: (run(value), run(-value))
