"""`zero_grad` of optimizers and modules while it is watched."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from stepscope.tracer.inductor.clearing_calls import ClearingCalls


class Own(nn.Linear):
    """A module with a `zero_grad` of its own."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none)


@pytest.fixture
def told() -> Iterator[list[tuple[str, Any]]]:
    originals = Optimizer.zero_grad, nn.Module.zero_grad
    told: list[tuple[str, Any]] = []
    calls = ClearingCalls(lambda owner: told.append(("before", owner)), lambda owner: told.append(("after", owner)))
    calls.attach()
    yield told
    calls.detach()
    assert (Optimizer.zero_grad, nn.Module.zero_grad) == originals


@pytest.mark.parametrize("module", [nn.Linear(2, 2), Own(2, 2)])
def test_each_call_is_told_once(told: list[tuple[str, Any]], module: nn.Module) -> None:
    optimizer = SGD(module.parameters(), lr=0.1)
    module(torch.ones(1, 2)).sum().backward()
    module.zero_grad()
    optimizer.zero_grad(set_to_none=False)
    assert told == [("before", module), ("after", module), ("before", optimizer), ("after", optimizer)]
    assert all(one.grad is None for one in module.parameters())


def test_the_signature_stays_and_objects_can_be_pickled(told: list[tuple[str, Any]]) -> None:
    assert list(inspect.signature(nn.Module.zero_grad).parameters) == ["self", "set_to_none"]
    copy = pickle.loads(pickle.dumps(nn.Linear(2, 2)))
    copy.zero_grad()
    assert [what for what, _ in told] == ["before", "after"]


def test_compiled_code_may_clear_gradients(told: list[tuple[str, Any]]) -> None:
    """Dynamo traces the call, as it does without the wrapper, and nothing is told."""
    module = nn.Linear(2, 2)

    def run(x: Tensor) -> Tensor:
        module.zero_grad()
        result: Tensor = module(x)
        return result

    torch._dynamo.reset()
    x = torch.ones(1, 2)
    compiled = torch.compile(run, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x), module(x))
    assert told == []
