"""What watching the gradients of an optimizer leaves untouched, and what it tells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from stepscope.tracer.inductor.kept_gradients import MOST_READ, MOST_READ_AFTER_OTHERS, GradientResets
from stepscope.tracer.schema.steps import KeptGradients


class _Training:
    """A layer that is trained for some steps, and the watcher of its optimizer."""

    def __init__(self) -> None:
        self.net = torch.nn.Linear(3, 2)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.told: list[KeptGradients] = []
        self.failures: list[BaseException] = []
        self.watcher = GradientResets(self.told.append, lambda _, error: self.failures.append(error))

    def run(self, steps: int, clear: Callable[[], None] = lambda: None) -> None:
        for _ in range(steps):
            clear()
            self.watcher.look("backward")
            self.net(torch.ones(4, 3)).sum().backward()
            self.optimizer.step()
            self.watcher.stepped(self.optimizer)


def _reads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that grows with each reading of a gradient."""
    found: list[Any] = []
    read = Tensor.any

    def noted(tensor: Tensor, *arguments: Any) -> Tensor:
        found.append(tensor.shape)
        return read(tensor, *arguments)

    monkeypatch.setattr(Tensor, "any", noted)
    return found


def test_kept_gradients_are_told_after_few_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    training, reads = _Training(), _reads(monkeypatch)
    training.run(2 * MOST_READ)
    training.watcher.tell()
    assert [(one.kept, one.cleared) for one in training.told] == [(2 * MOST_READ - 1, 0)]
    assert len(reads) == MOST_READ


def test_gradients_that_stay_zero_are_read_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    training, reads = _Training(), _reads(monkeypatch)

    def clear() -> None:
        for one in training.net.parameters():
            if one.grad is not None:
                one.grad.data.zero_()  # which the version counter does not see

    training.run(2 * MOST_READ, clear)
    training.watcher.tell()
    assert training.told == []
    assert len(reads) == MOST_READ


def test_watched_tensors_can_be_swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.__future__, "_swap_module_params_on_conversion", True)
    training = _Training()
    training.run(2)
    training.net.to(torch.float64)
    assert training.net.bias.dtype is torch.float64


def test_gradients_of_tensor_subclasses_are_not_read() -> None:
    class Distributed(Tensor):
        pass

    training = _Training()
    training.run(1)
    for one in training.net.parameters():
        one.grad = torch.ones_like(one).as_subclass(Distributed)
    training.run(4)
    training.watcher.tell()
    assert type(training.net.bias.grad) is Distributed
    assert (training.told, training.failures) == ([], [])


def test_a_failure_is_reported_once() -> None:
    training = _Training()
    training.optimizer.__dict__["param_groups"] = None
    training.watcher.stepped(training.optimizer)
    training.watcher.stepped(training.optimizer)
    assert [type(one) for one in training.failures] == [TypeError]


def test_a_child_forgets_the_steps_of_its_parent() -> None:
    training = _Training()
    training.run(4)
    training.watcher.after_fork()
    training.watcher.tell()
    assert training.told == []


class _Adversaries:
    """A critic and a compiled generator, each with an optimizer, whose backward passes both reach the critic."""

    def __init__(self, is_critic_compiled: bool = True) -> None:
        self.critic, self.generator = torch.nn.Linear(3, 1), torch.nn.Linear(2, 3)
        self.of_critic = torch.optim.SGD(self.critic.parameters(), lr=0.1)
        self.of_generator = torch.optim.SGD(self.generator.parameters(), lr=0.1)
        self.is_critic_compiled = is_critic_compiled
        self.told: list[KeptGradients] = []
        self.watcher = GradientResets(self.told.append, lambda _, error: self._fail(error))

    def run(self, steps: int, clear: Callable[[torch.optim.Optimizer], None] = lambda _: None) -> None:
        for _ in range(steps):
            clear(self.of_critic)
            self._step(torch.ones(4, 3), self.of_critic)
            self.of_generator.zero_grad()
            made = self.generator(torch.ones(4, 2))
            made.register_hook(lambda _: self.watcher.look("backward"))
            self._step(made, self.of_generator)
        self.watcher.tell()

    def _step(self, samples: Tensor, optimizer: torch.optim.Optimizer) -> None:
        if self.is_critic_compiled:
            self.watcher.look("backward")
        self.critic(samples).sum().backward()
        optimizer.step()
        self.watcher.stepped(optimizer)

    def _fail(self, error: BaseException) -> None:
        raise AssertionError from error


def test_gradients_to_which_another_loss_adds_are_kept() -> None:
    training = _Adversaries()
    training.run(6)
    assert [(one.kept, one.cleared) for one in training.told] == [(5, 0)]


def test_gradients_to_which_another_loss_adds_are_read_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    training, reads = _Adversaries(), _reads(monkeypatch)
    training.run(4 * MOST_READ_AFTER_OTHERS)
    assert len(reads) <= 2 * MOST_READ + MOST_READ_AFTER_OTHERS
    assert [one.cleared for one in training.told] == [0]


@pytest.mark.parametrize("is_critic_compiled", [True, False])
@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_that_are_cleared_after_another_loss_are_not_kept(
    is_critic_compiled: bool, set_to_none: bool
) -> None:
    training = _Adversaries(is_critic_compiled)
    training.run(6, lambda one: one.zero_grad(set_to_none=set_to_none))
    assert training.told == []


class _OfInput(_Training):
    """A training in which a backward pass computes the gradient of an input before the gradients are set to zero."""

    def run(self, steps: int, clear: Callable[[], None] = lambda: None) -> None:
        for _ in range(steps):
            x = torch.ones(4, 3, requires_grad=True)
            self.watcher.look("backward")
            (moved,) = torch.autograd.grad(self.net(x).sum(), x)
            clear()
            for part in (x + moved).detach().chunk(3):
                self.watcher.look("backward")
                self.net(part).sum().backward()
            self.optimizer.step()
            self.watcher.stepped(self.optimizer)
        self.watcher.tell()


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_that_are_cleared_after_one_of_an_input_are_not_kept(set_to_none: bool) -> None:
    training = _OfInput()
    training.run(2 * MOST_READ_AFTER_OTHERS, lambda: training.optimizer.zero_grad(set_to_none=set_to_none))
    assert all(one.cleared for one in training.told)


def test_gradients_that_several_passes_add_to_are_kept() -> None:
    training = _OfInput()
    training.run(2 * MOST_READ_AFTER_OTHERS)
    assert [(one.kept, one.cleared) for one in training.told] == [(2 * MOST_READ_AFTER_OTHERS - 1, 0)]


@pytest.mark.parametrize("clears", [None, {"set_to_none": True}, {"set_to_none": False}])
def test_gradients_of_a_model_that_is_not_compiled_may_be_set_to_zero_late(clears: dict[str, bool] | None) -> None:
    """An eager model trains beside a compiled one, whose backward pass begins before its gradients are set to zero."""
    training = _Training()
    eager = torch.nn.Linear(3, 2)
    other = torch.optim.Adam(eager.parameters(), lr=0.1)

    def train_other() -> None:
        training.optimizer.zero_grad()
        training.watcher.look("backward")
        if clears:
            other.zero_grad(**clears)
        eager(torch.ones(4, 3)).sum().backward()
        other.step()
        training.watcher.stepped(other)

    training.run(6, train_other)
    training.watcher.tell()
    assert [one.name for one in training.told] == ([] if clears else ["Adam"])
