"""Differences of unsigned tensors that are converted too late are found in the text of Dynamo's graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from stepscope.viewer.graphs.queries.dynamo_nodes import functions
from stepscope.viewer.graphs.queries.unsigned_differences import differences

Function = Callable[[Tensor, Tensor], Tensor]


def found(function: Function, dtype: torch.dtype = torch.uint8) -> list[str]:
    graphs: list[str] = []

    def keep(module: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        graphs.append(module.print_readable(print_output=False, include_stride=True, include_device=True))
        return module.forward

    torch._dynamo.reset()
    torch.compile(function, backend=keep)(torch.ones(4, dtype=dtype), torch.zeros(4, dtype=dtype))
    (graph,) = graphs
    return [converted_to for _, converted_to in differences(functions(graph))]


@pytest.mark.parametrize(
    ("function", "converted_to"),
    [
        (lambda a, b: (a - b).float() / 255, "float32"),
        (lambda a, b: torch.sub(a, b).to(torch.float64), "float64"),
        (lambda a, b: (a - b) * 0.5, "float32"),
        (lambda a, b: (a - b).long(), "int64"),
        (lambda a, b: (a - b).sum(), "int64"),
        (lambda a, b: (a.min() - b.max()).float(), "float32"),
        (lambda a, b: torch.mean(a - b, dtype=torch.float32), "float32"),
        (lambda a, b: (a - b).abs(), "abs"),
        (lambda a, b: a.sub(b).abs().float(), "abs"),
    ],
)
def test_a_difference_that_is_converted_afterwards(function: Function, converted_to: str) -> None:
    assert found(function) == [converted_to]
    assert found(function, torch.int16) == []


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: (a.float() - b.float()) / 255,
        lambda a, b: a.int() - b.int(),
        lambda a, b: (1 - a).float(),
        lambda a, b: (a + b).float(),
        lambda a, b: a - b,
        lambda a, b: (a - b) ^ b,
        lambda a, b: ((a - b) > 3) & (b > 0),
        lambda a, b: (torch.maximum(a, b) - torch.minimum(a, b)).float(),
        lambda a, b: (a.max() - b).float(),
        lambda a, b: (a - a.amin(0, keepdim=True)) / 255,
        lambda a, b: (a.max(dim=0).values - b).float(),
        lambda a, b: torch.count_nonzero(a - b),
        lambda a, b: (a - b).argmax(),
        lambda a, b: torch.zeros_like(a - b, dtype=torch.float32),
    ],
)
def test_other_operations(function: Function) -> None:
    assert found(function) == []
