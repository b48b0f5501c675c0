"""Moving averages whose updates their dtype rounds away are found in the text of Dynamo's graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from stepscope.viewer.graphs.queries.dynamo_nodes import functions
from stepscope.viewer.graphs.queries.rounded_averages import averages, factor_of

Update = Callable[[list[Tensor], list[Tensor]], object]


def logged(update: Update, dtype: torch.dtype) -> str:
    """Return the graph of an update as Dynamo logs it."""
    graphs: list[str] = []

    def keep(module: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        graphs.append(module.print_readable(print_output=False, include_stride=True, include_device=True))
        return module.forward

    torch._dynamo.reset()
    old, new = ([torch.randn(4, 4, dtype=dtype) for _ in range(2)] for _ in range(2))
    torch.compile(update, backend=keep)(old, new)
    (graph,) = graphs
    return graph


def found(update: Update, dtype: torch.dtype = torch.bfloat16) -> list[tuple[str, float]]:
    return [(name, weight) for name, _, weight, _ in averages(functions(logged(update, dtype))[0])]


def in_pairs(function: Callable[[Tensor, Tensor], object]) -> Update:
    def update(old: list[Tensor], new: list[Tensor]) -> object:
        return [function(average, value) for average, value in zip(old, new, strict=True)]

    return update


def foreach(old: list[Tensor], new: list[Tensor]) -> None:
    torch._foreach_mul_(old, 0.999)
    torch._foreach_add_(old, new, alpha=0.001)


def augmented(average: Tensor, value: Tensor) -> None:
    average += 0.001 * (value - average)


def in_place(average: Tensor, value: Tensor) -> None:
    average[:] = average * 0.999 + value * 0.001


def in_place_of_all(average: Tensor, value: Tensor) -> None:
    average[...] = average * 0.999 + value * 0.001


def in_float32(average: Tensor, value: Tensor) -> None:
    average.copy_((average.float() * 0.999 + value.float() / 1000).to(average.dtype))


@pytest.mark.parametrize(
    "update",
    [
        in_pairs(lambda average, value: average.lerp_(value, 0.001)),
        in_pairs(lambda average, value: average.copy_(torch.lerp(average, value.detach(), 0.001))),
        in_pairs(lambda average, value: average.mul_(0.999).add_(value, alpha=0.001)),
        in_pairs(lambda average, value: average.copy_(0.999 * average + (1 - 0.999) * value)),
        in_pairs(lambda average, value: average.sub_((average - value) * 0.001)),
        in_pairs(lambda average, value: average.sub_(average - value, alpha=0.001)),
        in_pairs(augmented),
        in_pairs(in_place),
        in_pairs(in_place_of_all),
        in_pairs(lambda average, value: average.data.mul_(0.999).add_(value.data, alpha=0.001)),
        in_pairs(lambda average, value: average.detach().lerp_(value, 0.001)),
        in_pairs(in_float32),
        in_pairs(lambda average, value: average.copy_(average.float().lerp(value.float(), 0.001).type_as(average))),
        foreach,
    ],
)
def test_updates_of_a_thousandth_are_lost(update: Update) -> None:
    assert found(update) == [("L_old_0_", 0.001), ("L_old_1_", 0.001)]
    assert found(update, torch.float16) == []
    assert found(update, torch.float32) == []


@pytest.mark.parametrize(
    "update",
    [
        in_pairs(lambda average, value: average.lerp_(value, 0.1)),
        in_pairs(lambda average, value: average.lerp_(value, 0.0035)),
        in_pairs(lambda average, value: average.copy_(value.sin().type_as(average.float().lerp(value.float(), 0.001)))),
        in_pairs(lambda average, value: average.mul_(0.999)),
        in_pairs(lambda average, value: average.add_(value, alpha=-0.001)),
        in_pairs(lambda average, value: average.mul_(1 - 1e-4).add_(value, alpha=-1e-3)),  # weight decay
        in_pairs(lambda average, value: average.mul_(0.999).addcmul_(value, value, value=0.001)),
        in_pairs(lambda average, value: average * 0.999 + value * 0.001),  # nothing keeps it
        in_pairs(lambda average, value: average.lerp_(value, value)),
        in_pairs(lambda average, value: average.copy_(value)),
        in_pairs(lambda average, value: average.copy_(0.999 * value + 0.001 * value.relu())),
    ],
)
def test_other_updates_are_no_lost_averages(update: Update) -> None:
    assert found(update) == []


def test_how_far_a_value_must_be_away() -> None:
    one = torch.tensor(1.0, dtype=torch.bfloat16)
    away = 1 + factor_of("bf16", 1e-3)
    assert torch.lerp(one, torch.tensor(0.98 * away, dtype=torch.bfloat16), 1e-3) == one
    assert torch.lerp(one, torch.tensor(2.2 * away, dtype=torch.bfloat16), 1e-3) > one


@pytest.mark.parametrize("text", ["", "def forward(self", "def forward(self, x):\n    x = " + "(" * 5000, "\0"])
def test_a_text_that_is_no_graph_has_none(text: str) -> None:
    assert [one for function in functions(text) for one in averages(function)] == []
