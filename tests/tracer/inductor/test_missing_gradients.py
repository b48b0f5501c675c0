"""Parameters of an optimizer that have no gradient, as the hook of the recorder sees them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from stepscope.tracer.inductor.clearing_calls import ClearingCalls
from stepscope.tracer.inductor.learning_rates import RateWatch
from stepscope.tracer.inductor.lost_updates import UpdateWatch
from stepscope.tracer.inductor.missing_gradients import STEPS, STEPS_IF_ALL, GradientWatch
from stepscope.tracer.inductor.untrained_parameters import UntrainedWatch
from stepscope.tracer.schema.steps import MissingGradients


def failed(where: str, error: BaseException) -> None:
    raise AssertionError(where) from error


def looked_at(parameters: Iterable[nn.Parameter], steps: int = STEPS) -> list[MissingGradients]:
    found: list[MissingGradients] = []
    watch, optimizer = GradientWatch(found.append, failed), torch.optim.SGD(parameters, lr=0.1)
    for _ in range(steps):
        watch.begins(optimizer)
    return found


def model(with_gradient: Iterable[str]) -> nn.Module:
    built = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 4)))
    for name, one in built.named_parameters():
        one.grad = torch.ones_like(one) if name in with_gradient else None
    return built


def test_parameters_without_a_gradient_have_the_names_of_the_outermost_module() -> None:
    built = model(["0.weight", "0.bias"])
    (found,) = looked_at(built.parameters())
    assert (found.parameters, found.missing, found.unowned) == (4, 2, 0)
    assert (found.names, found.sizes) == (["1.0.weight", "1.0.bias"], [[4, 3], [4]])


def test_parameters_of_a_layer_that_was_replaced_belong_to_no_module() -> None:
    built = model(["0.weight", "0.bias"])
    old = [*built.parameters()]
    built.add_module("1", nn.Linear(3, 5))
    (found,) = looked_at(old)
    assert (found.missing, found.unowned, found.names) == (2, 2, [None, None])


def watched_steps(built: nn.Module, found: list[MissingGradients]) -> Iterator[torch.optim.Optimizer]:
    """Yield the optimizer of a model before each of its steps, and add what is told of them in the end."""
    watch, optimizer = GradientWatch(found.append, failed), torch.optim.SGD(built.parameters(), lr=0.1)
    calls = ClearingCalls(watch.clears, watch.cleared)
    calls.attach()
    for _ in range(STEPS):
        yield optimizer
        watch.begins(optimizer)
    calls.detach()
    watch.tell()


@pytest.mark.parametrize("clears", ["the optimizer", "the model", "none"])
@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_that_are_cleared_before_each_step(clears: str, set_to_none: bool) -> None:
    found: list[MissingGradients] = []
    built = model([])
    for optimizer in watched_steps(built, found):
        if clears != "none":
            built(torch.ones(1, 2)).sum().backward()
            (built if clears == "the model" else optimizer).zero_grad(set_to_none=set_to_none)
    assert [one.cleared for one in found] == ([0] if clears == "none" else [STEPS])
    for one in found:
        assert (one.missing, one.parameters) == (4, 4)
        assert (one.zero_grad_file == __file__) == (clears != "none")


def test_gradients_that_are_set_to_zero_before_the_backward_pass_are_not_missing() -> None:
    found: list[MissingGradients] = []
    built = model([])
    for optimizer in watched_steps(built, found):
        optimizer.zero_grad(set_to_none=False)
        built(torch.zeros(1, 2)).sum().backward()
    assert not found


def test_gradients_that_the_program_writes_itself_are_not_missing() -> None:
    """As Reptile does, past the version counter."""
    found: list[MissingGradients] = []
    built = model(["0.weight", "0.bias", "1.0.weight", "1.0.bias"])
    for optimizer in watched_steps(built, found):
        optimizer.zero_grad(set_to_none=False)
        for one in built.parameters():
            assert one.grad is not None
            one.grad.data.add_(1)
    assert not found


@pytest.mark.parametrize("later", [STEPS + 1, 0])
def test_gradients_that_begin_later_are_not_told(later: int) -> None:
    found: list[MissingGradients] = []
    watch, built = GradientWatch(found.append, failed), model([])
    optimizer = torch.optim.SGD(built.parameters(), lr=0.1)
    for step in range(STEPS_IF_ALL):
        if later and step >= later:
            built(torch.ones(1, 2)).sum().backward()
        watch.begins(optimizer)
    watch.tell()
    assert [one.steps for one in found] == ([] if later else [STEPS_IF_ALL])


def test_each_optimizer_has_its_own_cleared_gradients() -> None:
    """The model has parameters of two optimizers, and its gradients are cleared before both step."""
    found: list[MissingGradients] = []
    watch, built = GradientWatch(found.append, failed), model([])
    optimizers = [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in built.children()]
    calls = ClearingCalls(watch.clears, lambda _: None)
    calls.attach()
    for _ in range(STEPS):
        built(torch.ones(1, 2)).sum().backward()
        built.zero_grad()
        for optimizer in optimizers:
            watch.begins(optimizer)
    calls.detach()
    assert [one.cleared for one in found] == [STEPS, STEPS]


def test_an_optimizer_of_another_library_may_read_no_gradients() -> None:
    class Foreign(torch.optim.SGD):
        pass

    found: list[MissingGradients] = []
    watch, optimizer = GradientWatch(found.append, failed), Foreign(model([]).parameters(), lr=0.1)
    for _ in range(STEPS_IF_ALL):
        watch.begins(optimizer)
    assert found == []


def test_nothing_is_told_of_all_gradients_and_of_few_steps() -> None:
    everything = ["0.weight", "0.bias", "1.0.weight", "1.0.bias"]
    assert looked_at(model(everything).parameters()) == []
    assert looked_at(model(everything[:1]).parameters(), STEPS - 1) == []
    frozen = model(everything[:2])
    frozen.get_parameter("1.0.weight").requires_grad_(False)
    frozen.get_parameter("1.0.bias").requires_grad_(False)
    assert looked_at(frozen.parameters()) == []


def test_parameters_without_any_module_are_not_called_left_behind() -> None:
    one, other = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))
    one.grad = torch.ones(2)
    (found,) = looked_at([one, other])
    assert (found.missing, found.unowned, found.sizes) == (1, 0, [[3]])


class Unhashable(torch.optim.SGD):
    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = None  # type: ignore[assignment]


def rate_watch(write: Any, failed: Any) -> RateWatch:
    return RateWatch(write, failed, lambda optimizer: None)


@pytest.mark.parametrize("watch", [GradientWatch, UpdateWatch, UntrainedWatch, rate_watch])
def test_an_optimizer_that_cannot_be_hashed_ends_the_watch_and_not_the_program(watch: Any) -> None:
    told: list[str] = []
    watching = watch(lambda record: None, lambda where, error: told.append(where))
    if watch is UntrainedWatch:
        watching._known = {"x": None}
    optimizer = Unhashable([nn.Parameter(torch.ones(2, dtype=torch.bfloat16))], lr=0.1)
    for _ in range(2):
        watching.begins(optimizer)
    assert len(told) == 1
