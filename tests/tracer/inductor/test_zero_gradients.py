"""Gradients that are zero or too small for float16 when an optimizer steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from stepscope.tracer.inductor import eager_runs
from stepscope.tracer.inductor.zero_gradients import LOOKED, ZeroGradientsWatch
from stepscope.tracer.schema.parameters import ZeroGradients

FIRST, LAST = LOOKED[0], LOOKED[-1]


def failed(where: str, error: BaseException) -> None:
    raise AssertionError(where) from error


def looked_at(gradient_of: Callable[[int, str, nn.Parameter], Tensor | None], steps: int = LAST) -> list[ZeroGradients]:
    """Return what is told of steps with these gradients, by the step, counted from 1, and the parameter."""
    told: list[ZeroGradients] = []
    watch, model = ZeroGradientsWatch(told.append, failed), nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, steps + 1):
        for name, one in model.named_parameters():
            one.grad = gradient_of(step, name, one)
        watch.begins(optimizer)
    return told


def test_gradients_that_are_zero_at_each_look_are_named() -> None:
    (told,) = looked_at(lambda _, name, one: torch.zeros_like(one) if name.startswith("0.") else torch.ones_like(one))
    assert (told.looked, told.parameters, told.zero) == ([6, 11, 19], 4, 2)
    assert told.names == ["Sequential.0.weight", "Sequential.0.bias"]
    assert (told.elements, told.zero_elements, told.tiny_elements) == (11, 8, 0)


@pytest.mark.parametrize(
    "gradient_of",
    [
        lambda step, name, one: torch.full_like(one, float(step != FIRST)),
        lambda step, name, one: torch.full_like(one, float(name.endswith("weight"))),
        lambda step, name, one: torch.full_like(one, float(step % 2)),
        lambda step, name, one: torch.full_like(one, float(step % 3 == 0)),
        lambda step, name, one: None,
        lambda step, name, one: torch.zeros_like(one).to_sparse(),
        lambda step, name, one: torch.full_like(one, 1e-3),
        lambda step, name, one: torch.full_like(one, 1e-6) / 3,
    ],
)
def test_other_gradients_are_not_told(gradient_of: Callable[[int, str, nn.Parameter], Tensor | None]) -> None:
    assert not looked_at(gradient_of)


def test_a_program_that_ends_before_the_last_look_is_not_told() -> None:
    assert not looked_at(lambda _, name, one: torch.zeros_like(one), LAST - 1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_most_gradients_are_subnormal_numbers_of_float16(dtype: torch.dtype) -> None:
    def gradient_of(_: int, name: str, one: nn.Parameter) -> Tensor:
        made = torch.linspace(1e-9, 1e-6, one.numel()).to(torch.float16).to(dtype)
        return made.view(one.shape)

    told: list[ZeroGradients] = []
    watch, model = ZeroGradientsWatch(told.append, failed), nn.Linear(50, 4).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, LAST + 1):
        for name, one in model.named_parameters():
            one.grad = gradient_of(step, name, one)
        watch.begins(optimizer)
    assert [(one.zero, one.elements, one.zero_elements + one.tiny_elements) for one in told] == [(0, 204, 204)]


def test_gradients_that_were_unscaled_are_not_told() -> None:
    generator = torch.Generator().manual_seed(0)

    def gradient_of(_: int, name: str, one: nn.Parameter) -> Tensor:
        return torch.rand(one.shape, generator=generator).to(torch.float16).float() / 65_536

    assert not looked_at(gradient_of)


def test_no_look_waits_for_a_device_where_the_program_asked_to_hear_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager_runs, "waits_are_reported", lambda: True)
    assert not looked_at(lambda _, name, one: torch.zeros_like(one))
