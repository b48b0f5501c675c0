"""What watching the gradients of an optimizer leaves untouched, and what it tells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from stepscope.tracer.inductor.kept_gradients import MOST_READ, GradientResets
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
