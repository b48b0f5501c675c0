"""Matrix products that compute in float32 because dtypes are combined before them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from stepscope.viewer.graphs.queries.dynamo_nodes import functions
from stepscope.viewer.graphs.queries.promoted_products import promotions

Function = Callable[[Tensor, Tensor, Tensor], Tensor]


def under_autocast(x: Tensor, w: Tensor, table: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (x * table) @ w.float()


def added(x: Tensor, w: Tensor, table: Tensor) -> Tensor:
    x += table[0, 0] * 1.5
    return (x.float() + table).softmax(-1).to(x.dtype) @ w


def found(function: Function) -> list[tuple[str, str, str]]:
    graphs: list[str] = []

    def keep(module: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        graphs.append(module.print_readable(print_output=False, include_stride=True, include_device=True))
        return module.forward

    torch._dynamo.reset()
    low = torch.randn(4, 4, dtype=torch.bfloat16)
    torch.compile(function, backend=keep)(low, low.clone(), torch.randn(4, 4))
    (graph,) = graphs
    return [
        (product.function, combining.function, high.name)
        for of in functions(graph)[:1]
        for product, combining, high in promotions(of)
    ]


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda x, w, table: (x * table) @ w.float(), [("@", "*", "l_table_")]),
        (lambda x, w, table: torch.matmul(torch.add(table, x).relu(), table), [("matmul", "add", "l_table_")]),
        (
            lambda x, w, table: ((x - table).view(2, 8).t() @ table.view(2, 8)).sum() + (x @ w).sum(),
            [("@", "-", "l_table_")],
        ),
        (lambda x, w, table: (x * table).to(x.dtype) @ w, []),
        (lambda x, w, table: (x * table.sum()) @ w, []),
        (lambda x, w, table: (x * 0.5) @ w, []),
        (lambda x, w, table: (x.float() * table) @ w.float(), []),
        (lambda x, w, table: (x * table).mean(), []),
        (under_autocast, []),
        (added, []),
    ],
)
def test_products_that_promotion_makes_float32(function: Function, told: list[tuple[str, str, str]]) -> None:
    assert found(function) == told


@pytest.mark.parametrize("text", ["", "def forward(self", "\0"])
def test_a_text_that_is_no_graph_has_none(text: str) -> None:
    assert [one for function in functions(text) for one in promotions(function)] == []
