"""Steps of optimizers, as the hooks of the recorder see them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from stepscope.tracer.inductor import optimizer_steps
from stepscope.tracer.inductor.optimizer_steps import OptimizerRecord, OptimizerSteps
from stepscope.tracer.schema.steps import OptimizerStep


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[list[OptimizerStep], list[Any]]]:
    """The records of steps of any duration, and the optimizers that have stepped."""
    monkeypatch.setattr(optimizer_steps, "LEAST_NS", 0)
    steps: list[OptimizerStep] = []
    ends: list[Any] = []

    def write(record: OptimizerRecord) -> None:
        if isinstance(record, OptimizerStep):
            steps.append(record)

    hooks = OptimizerSteps(write, ends.append, lambda where, error: pytest.fail(f"{where}: {error}"), lambda: 0)
    hooks.attach()
    yield steps, ends
    hooks.detach()


def test_a_step_has_a_duration(told: tuple[list[OptimizerStep], list[Any]]) -> None:
    records, ends = told
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(3))])
    optimizer.step()
    optimizer.step(None)
    assert ends == [optimizer, optimizer]
    assert [one.name for one in records] == ["SGD", "SGD"]
    assert records[0].start_ns + records[0].duration_ns <= records[1].start_ns


def test_a_step_that_computes_the_loss_itself_is_no_work_of_the_optimizer(
    told: tuple[list[OptimizerStep], list[Any]],
) -> None:
    records, ends = told
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.LBFGS([weight], max_iter=1)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = weight.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    optimizer.step(closure=closure)  # type: ignore[no-untyped-call]
    assert (ends, records) == ([optimizer, optimizer], [])
