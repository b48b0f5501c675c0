"""Which updates of parameters in short dtypes are told to be lost, and which optimizers are left alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from stepscope.tracer.inductor.lost_updates import STEPS, UpdateWatch
from stepscope.tracer.schema.steps import LostUpdates


def told(rate: Callable[[int], float], dtype: torch.dtype = torch.bfloat16, gradient: float = 1.0) -> list[LostUpdates]:
    """Train parameters of equal elements with learning rates by step, and return what is told."""
    records: list[LostUpdates] = []
    watch = UpdateWatch(records.append, lambda what, error: pytest.fail(f"{what}: {error}"))
    weights = [nn.Parameter(torch.full((40, 30), 1.5, dtype=dtype)) for _ in range(3)]
    weights[2].requires_grad = False
    optimizer = torch.optim.SGD(weights, lr=rate(0))
    for step in range(2 * STEPS):
        optimizer.param_groups[0]["lr"] = rate(step)
        for one in weights[:2]:
            one.grad = torch.full_like(one, gradient)
        watch.begins(optimizer)
        optimizer.step()
        watch.stepped(optimizer)
    return records


def test_updates_that_the_dtype_rounds_away_are_told_once() -> None:
    (found,) = told(lambda step: 1e-4)
    assert (found.name, found.dtype, found.parameters) == ("SGD", "bfloat16", 3)
    assert found.elements == found.unchanged > 0
    assert (found.learning_rate, found.magnitude) == (1e-4, 1.5)
    assert found.file is not None


@pytest.mark.parametrize("rate", [lambda step: 0.1, lambda step: 1e-6 * (step + 1), lambda step: 0.0])
def test_updates_that_arrive_and_a_warm_up_are_not_told(rate: Callable[[int], float]) -> None:
    assert told(rate) == []


def test_parameters_without_a_gradient_or_with_more_digits_are_not_told() -> None:
    assert told(lambda step: 1e-4, gradient=0.0) == []
    assert told(lambda step: 1e-4, torch.float32) == []
