"""Calls of functional dropout that do not say whether the model trains are found in the text of Dynamo's graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepscope.viewer.graphs.queries.dynamo_nodes import functions
from stepscope.viewer.graphs.queries.inference_dropouts import active


def found(function: Callable[[Tensor], Tensor]) -> list[str]:
    graphs: list[str] = []

    def keep(module: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        graphs.append(module.print_readable(print_output=False, include_stride=True, include_device=True))
        return module.forward

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(function, backend=keep)(torch.ones(2, 4, 4))
    (graph,) = graphs
    return [name for _, name in active(functions(graph))]


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: F.dropout(x) + 1, "dropout"),
        (lambda x: F.dropout(x.relu(), 0.3), "dropout"),
        (lambda x: F.dropout(x, p=1e-3), "dropout"),
        (lambda x: F.dropout1d(x, 0.5), "dropout1d"),
    ],
)
def test_calls_that_do_not_say_whether_the_model_trains(function: Callable[[Tensor], Tensor], name: str) -> None:
    assert found(function) == [name]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.dropout(x, 0.3, training=True),
        lambda x: F.dropout(x, 0.3, False) + 1,
        lambda x: nn.Dropout(0.3)(x),
        lambda x: nn.Dropout(0.3).eval()(x) + 1,
        lambda x: x.relu(),
    ],
)
def test_calls_that_say_so(function: Callable[[Tensor], Tensor]) -> None:
    assert found(function) == []
