"""Calls of `clip_grad_norm_` that come too late, or before the gradients are unscaled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.utils import clip_grad, clip_grad_norm_

from stepscope.tracer.inductor.cleared_gradients import MOST_OPTIMIZERS
from stepscope.tracer.inductor.clearing_calls import ClearingCalls
from stepscope.tracer.inductor.clipping_calls import ClippingCalls
from stepscope.tracer.inductor.misplaced_clipping import LEAST_STEPS, MOST_NORM, ClippingWatch
from stepscope.tracer.schema.steps import MisplacedClipping


class Training:
    """A small model and its optimizer while clipping is watched."""

    def __init__(self, optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD, **options: Any) -> None:
        self.told: list[MisplacedClipping] = []
        self.failures: list[str] = []
        self.watch = ClippingWatch(self.told.append, lambda where, error: self.failures.append(f"{where}: {error}"))
        self.model = nn.Linear(4, 4)
        self.optimizer = optimizer(self.model.parameters(), lr=0.01, **options)
        self.optimizer.register_step_pre_hook(lambda one, *_: self.watch.begins(one))
        self.optimizer.register_step_post_hook(lambda one, *_: self.watch.stepped(one))
        self.scaler = GradScaler("cpu", init_scale=1024.0)

    def backward(self) -> None:
        torch.autograd.backward(self.loss())

    def loss(self) -> Tensor:
        loss: Tensor = self.model(torch.ones(2, 4)).square().sum()
        return loss

    def clip(self, max_norm: Any = 0.5) -> None:
        clip_grad_norm_(self.model.parameters(), max_norm)


@pytest.fixture
def start() -> Iterator[Callable[..., Training]]:
    originals = clip_grad._clip_grads_with_norm_, GradScaler._unscale_grads_, nn.Module.zero_grad
    attached: list[Any] = []

    def begin(*arguments: Any, **options: Any) -> Training:
        training = Training(*arguments, **options)
        attached.extend([ClippingCalls(training.watch), ClearingCalls(lambda _: None, training.watch.cleared)])
        for calls in attached:
            calls.attach()
        return training

    yield begin
    for calls in attached:
        calls.detach()
    assert (clip_grad._clip_grads_with_norm_, GradScaler._unscale_grads_, nn.Module.zero_grad) == originals


def repeat(training: Training, *parts: Callable[[], object], steps: int = LEAST_STEPS + 2) -> list[MisplacedClipping]:
    for _ in range(steps):
        for part in parts:
            part()
    assert not training.failures
    return training.told


@pytest.mark.parametrize("owner", ["model", "optimizer"])
@pytest.mark.parametrize("set_to_none", [True, False])
def test_clipping_after_the_step(start: Callable[..., Training], owner: str, set_to_none: bool) -> None:
    one = start()
    clear = getattr(one, owner).zero_grad
    (told,) = repeat(one, lambda: clear(set_to_none), one.backward, one.optimizer.step, one.clip)
    assert (told.name, told.steps, told.max_norm, told.scale) == ("SGD", LEAST_STEPS, 0.5, None)
    assert told.clip_file == told.file == __file__
    assert told.clip_line != told.line


def test_clipping_before_the_step(start: Callable[..., Training]) -> None:
    one = start()
    assert repeat(one, one.optimizer.zero_grad, one.backward, one.clip, one.optimizer.step) == []


def test_clipping_before_and_after_the_step(start: Callable[..., Training]) -> None:
    one = start()
    assert repeat(one, one.backward, one.clip, one.optimizer.step, one.clip, one.optimizer.zero_grad) == []


def test_gradients_that_are_kept_are_clipped_for_the_next_step(start: Callable[..., Training]) -> None:
    one = start()
    assert repeat(one, one.backward, one.optimizer.step, one.clip) == []


@pytest.mark.parametrize("limit", [float("inf"), MOST_NORM, torch.tensor(1.0)])
def test_clipping_that_measures_the_norm(start: Callable[..., Training], limit: Any) -> None:
    one = start()
    parts = one.optimizer.zero_grad, one.backward, one.optimizer.step, lambda: one.clip(limit)
    assert repeat(one, *parts) == []


def test_clipping_of_other_parameters(start: Callable[..., Training]) -> None:
    one, other = start(), nn.Linear(2, 2)
    torch.autograd.backward(other(torch.ones(1, 2)).sum())
    parts = one.optimizer.zero_grad, one.backward, one.optimizer.step, lambda: clip_grad_norm_(other.parameters(), 0.5)
    assert repeat(one, *parts) == []


def scaled(one: Training, *parts: Callable[[], object], steps: int = LEAST_STEPS + 2) -> list[MisplacedClipping]:
    def backward() -> None:
        torch.autograd.backward(one.scaler.scale(one.loss()))

    return repeat(one, backward, *parts, one.scaler.update, one.optimizer.zero_grad, steps=steps)


def step_of(one: Training) -> Callable[[], object]:
    return lambda: one.scaler.step(one.optimizer)


@pytest.mark.parametrize("options", [{}, {"fused": True}])
def test_clipping_of_scaled_gradients(start: Callable[..., Training], options: dict[str, Any]) -> None:
    one = start(torch.optim.AdamW, **options)
    (told,) = scaled(one, one.clip, step_of(one))
    assert (told.name, told.max_norm, told.scale) == ("AdamW", 0.5, 1024.0)
    assert told.clip_file == __file__


@pytest.mark.parametrize("options", [{}, {"fused": True}])
def test_clipping_of_unscaled_gradients(start: Callable[..., Training], options: dict[str, Any]) -> None:
    one = start(torch.optim.AdamW, **options)
    assert scaled(one, lambda: one.scaler.unscale_(one.optimizer), one.clip, step_of(one)) == []


def test_a_limit_that_is_multiplied_by_the_scale(start: Callable[..., Training]) -> None:
    one = start()
    assert scaled(one, lambda: one.clip(0.5 * one.scaler.get_scale()), step_of(one)) == []


def test_a_scaler_that_is_off(start: Callable[..., Training]) -> None:
    one = start()
    one.scaler = GradScaler("cpu", enabled=False)
    assert scaled(one, one.clip, step_of(one)) == []


def test_too_few_steps(start: Callable[..., Training]) -> None:
    one = start()
    parts = one.optimizer.zero_grad, one.backward, one.optimizer.step, one.clip
    assert repeat(one, *parts, steps=LEAST_STEPS) == []


def test_a_failure_is_told_once(start: Callable[..., Training], monkeypatch: pytest.MonkeyPatch) -> None:
    one = start()
    monkeypatch.setattr(one.watch, "_clips", lambda _: 1 / 0)
    one.backward()
    one.optimizer.step()
    one.clip()
    one.clip()
    assert one.failures == ["clipping of gradients: division by zero"]


def test_compiled_code_may_clip(start: Callable[..., Training]) -> None:
    one = start()
    one.backward()
    torch._dynamo.reset()
    torch.compile(lambda: one.clip(), backend="eager", fullgraph=True)()
    assert not one.failures


def frames_of_a_compiled_step(one: Training) -> int:
    """Return how many frames Dynamo looks at for a compiled function that steps by a scaler."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()

    def step() -> None:
        one.optimizer.zero_grad()
        torch.autograd.backward(one.scaler.scale(one.loss()))
        one.scaler.step(one.optimizer)
        one.scaler.update()

    torch.compile(step, backend="eager")()
    return int(torch._dynamo.utils.counters["frames"]["total"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_scaler_in_compiled_code(start: Callable[..., Training]) -> None:
    frames_of_a_compiled_step(Training())  # what PyTorch imports in its first compile counts once
    plain = frames_of_a_compiled_step(Training())
    assert frames_of_a_compiled_step(start()) == plain > 0


def test_clipping_that_is_late_for_one_of_two_optimizers(start: Callable[..., Training]) -> None:
    """As where a critic steps before the actor, and the gradients of both are clipped."""
    one = start()
    other = nn.Linear(4, 4)
    actor = torch.optim.SGD(other.parameters(), lr=0.01)
    actor.register_step_pre_hook(lambda optimizer, *_: one.watch.begins(optimizer))
    actor.register_step_post_hook(lambda optimizer, *_: one.watch.stepped(optimizer))

    def clip() -> None:
        torch.autograd.backward(other(torch.ones(2, 4)).square().sum())
        clip_grad_norm_([*one.model.parameters(), *other.parameters()], 0.5)
        actor.step()
        actor.zero_grad()

    assert repeat(one, one.optimizer.zero_grad, one.backward, one.optimizer.step, clip) == []


def test_many_optimizers_end_the_watch(start: Callable[..., Training]) -> None:
    one = start()
    kept = []
    for _ in range(MOST_OPTIMIZERS + 1):
        kept.append(torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1))
        one.watch.stepped(kept[-1])
    parts = one.optimizer.zero_grad, one.backward, one.optimizer.step, one.clip
    assert repeat(one, *parts) == []
