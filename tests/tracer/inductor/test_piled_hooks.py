"""Hooks that are registered in each step, and those of programs that remove them or register them once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from stepscope.tracer.inductor import piled_hooks
from stepscope.tracer.inductor.piled_hooks import EVERY, LOOKS, MOST_OPTIMIZERS, PilesWatch
from stepscope.tracer.schema.steps import PiledHooks

pytestmark = pytest.mark.slow


LAST = EVERY * LOOKS


class Training:
    """A small model whose hooks are watched while an optimizer steps."""

    def __init__(self) -> None:
        self.told: list[PiledHooks] = []
        self.failures: list[str] = []
        self.watch = PilesWatch(self.told.append, lambda where, error: self.failures.append(f"{where}: {error}"))
        self.model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        self.weights: list[Any] = [*self.model.parameters()][::2]
        self.optimizer = self.watched()

    def watched(self) -> torch.optim.Optimizer:
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        optimizer.register_step_pre_hook(lambda one, *_: self.watch.begins(one))
        return optimizer

    def run(self, register: Callable[[int], object], steps: int = LAST + 2) -> list[PiledHooks]:
        for step in range(steps):
            register(step)
            self.optimizer.step()
        assert not self.failures
        return self.told


def damp(gradient: Any) -> Any:
    return gradient * 0.9


def watch(*_: Any) -> None:
    pass


def test_hooks_of_parameters() -> None:
    one = Training()
    (told,) = one.run(lambda _: [weight.register_hook(damp) for weight in one.weights])
    assert (told.attribute, told.name, told.file) == ("_backward_hooks", "damp", __file__)
    assert (told.owner, told.is_parameter, told.owners) == ("Sequential.0.weight", True, 2)
    assert (told.hooks, told.step, told.step_file) == (LAST, LAST, __file__)


def test_hooks_that_are_made_anew() -> None:
    one = Training()
    (told,) = one.run(lambda step: one.weights[0].register_hook(lambda gradient: gradient * step))
    assert told.name.endswith("<lambda>")
    assert told.owners == 1


def test_hooks_after_the_accumulation() -> None:
    one = Training()
    (told,) = one.run(lambda _: one.weights[1].register_post_accumulate_grad_hook(watch))
    assert (told.attribute, told.owner) == ("_post_accumulate_grad_hooks", "Sequential.1.weight")


@pytest.mark.parametrize(
    ("kind", "attribute"),
    [
        ("forward_hook", "_forward_hooks"),
        ("forward_pre_hook", "_forward_pre_hooks"),
        ("full_backward_hook", "_backward_hooks"),
        ("full_backward_pre_hook", "_backward_pre_hooks"),
    ],
)
def test_hooks_of_a_module(kind: str, attribute: str) -> None:
    one = Training()
    (told,) = one.run(lambda _: getattr(one.model[1], f"register_{kind}")(watch))
    assert (told.attribute, told.owner, told.is_parameter) == (attribute, "Sequential.1", False)


def test_each_function_is_told_once() -> None:
    one = Training()
    other, weights = one.watched(), one.weights

    def register(_: int) -> None:
        weights[0].register_hook(damp)
        weights[1].register_hook(lambda gradient: gradient)
        other.step()

    assert len(one.run(register)) == 2


def test_hooks_that_are_removed() -> None:
    one, handles = Training(), list[Any]()

    def register(_: int) -> None:
        for handle in handles:
            handle.remove()
        handles[:] = [weight.register_hook(damp) for weight in one.weights]

    assert one.run(register) == []


def test_hooks_that_are_registered_once() -> None:
    one = Training()
    for _ in range(LAST):
        one.weights[0].register_hook(damp)
    assert one.run(lambda _: None) == []


@pytest.mark.parametrize("end", [EVERY, EVERY * 2 + 1])
def test_hooks_of_the_first_steps(end: int) -> None:
    one = Training()
    assert one.run(lambda step: one.weights[0].register_hook(damp) if step < end else None) == []


def test_hooks_of_some_steps() -> None:
    one = Training()
    assert one.run(lambda step: one.weights[0].register_hook(damp) if step % 2 else None) == []


def test_few_steps() -> None:
    one = Training()
    assert one.run(lambda _: one.weights[0].register_hook(damp), LAST - 1) == []


def test_programs_with_many_optimizers_are_not_looked_at() -> None:
    one = Training()
    others = [one.watched() for _ in range(MOST_OPTIMIZERS)]
    for other in others:
        other.step()
    assert one.run(lambda _: one.weights[0].register_hook(damp)) == []


def test_a_failure_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Training()
    monkeypatch.setattr(piled_hooks, "_piles", lambda _: 1 / 0)
    with pytest.raises(AssertionError):
        one.run(lambda _: one.weights[0].register_hook(damp))
    assert one.failures == ["hooks that pile up: division by zero"]


def test_a_program_that_registers_no_hooks_is_not_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Training()
    monkeypatch.setattr(piled_hooks, "_piles", lambda _: 1 / 0)
    assert one.run(lambda _: None) == []
