"""Modules in a `DistributedDataParallel` that is never called, and those whose gradients it or the program averages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch._C._distributed_c10d import HashStore
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from stepscope.tracer.inductor import unaveraged_gradients
from stepscope.tracer.inductor.unaveraged_gradients import MOST_LOOKS, STEPS, AveragingWatch
from stepscope.tracer.schema.graphs import UnaveragedGradients

Start = Callable[[int], None]


@pytest.fixture
def start() -> Iterator[Start]:
    """Begins a process group, of which this process is rank 0."""
    yield lambda ranks: distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    if distributed.is_initialized():
        distributed.destroy_process_group()


class Training:
    """A small model that is trained while the wrapper of it is watched."""

    def __init__(self, model: nn.Module | None = None) -> None:
        self.told: list[UnaveragedGradients] = []
        self.failures: list[str] = []
        self.watch = AveragingWatch(self.told.append, lambda where, error: self.failures.append(f"{where}: {error}"))
        self.model = model or nn.Linear(4, 4)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.optimizer.register_step_pre_hook(lambda one, *_: self.watch.begins(one))

    def run(self, steps: int = STEPS + 3) -> list[UnaveragedGradients]:
        for _ in range(steps):
            for one in self.model.parameters():
                one.grad = torch.ones_like(one) if one.requires_grad else None
            self.optimizer.step()
        assert not self.failures
        return self.told


def test_a_wrapper_that_is_never_called(start: Start) -> None:
    start(2)
    one = Training()
    wrapper = DistributedDataParallel(one.model)
    (told,) = one.run()
    assert (told.name, told.steps, told.module, told.ranks) == ("SGD", STEPS, "Linear", [0, 1])
    assert told.file == __file__
    assert not wrapper._lazy_init_ran


def test_a_digest_tells_parameters_apart(start: Start) -> None:
    start(2)
    models = [nn.Linear(4, 4) for _ in range(3)]
    models[1].load_state_dict(models[0].state_dict())
    wrappers = [DistributedDataParallel(one) for one in models]
    digests = [told.digest for one in models for told in Training(one).run()]
    assert len(digests) == len(wrappers)
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("how", ["called", "no_grad", "no_sync"])
def test_a_wrapper_that_is_called(start: Start, how: str) -> None:
    start(2)
    one = Training()
    wrapper = DistributedDataParallel(one.model)
    with torch.set_grad_enabled(how != "no_grad"):
        if how == "no_sync":
            with wrapper.no_sync():
                wrapper(torch.ones(2, 4))
        else:
            wrapper(torch.ones(2, 4))
    assert one.run() == []


def test_a_single_rank(start: Start) -> None:
    start(1)
    one = Training()
    wrapper = DistributedDataParallel(one.model)
    assert one.run() == []
    assert wrapper.module is one.model


def test_a_group_of_one_rank(start: Start) -> None:
    start(2)
    one = Training()
    wrapper = DistributedDataParallel(one.model, process_group=distributed.new_group([0]))
    assert one.run() == []
    assert wrapper.module is one.model


def test_a_wrapper_of_another_module(start: Start) -> None:
    start(2)
    one, wrapper = Training(), DistributedDataParallel(nn.Linear(2, 2))
    assert one.run() == []
    assert not wrapper._lazy_init_ran


def test_parameters_that_the_wrapper_ignores(start: Start) -> None:
    start(2)
    one = Training()
    one.model.requires_grad_(False)
    assert isinstance(one.model.bias, nn.Parameter)
    one.model.bias.requires_grad_(True)
    ignore: Any = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
    outer = nn.Sequential(one.model, nn.Linear(4, 4))
    ignore(outer, ["0.bias"])
    wrapper = DistributedDataParallel(outer)
    assert one.run() == []
    assert not wrapper._lazy_init_ran


def test_without_a_process_group() -> None:
    assert Training().run() == []


def test_few_steps(start: Start) -> None:
    start(2)
    one = Training()
    wrapper = DistributedDataParallel(one.model)
    assert one.run(STEPS) == []
    assert not wrapper._lazy_init_ran


def test_looks_are_few(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    start(2)
    looks: list[set[int]] = []

    def wrappers(parameters: set[int]) -> list[Any]:
        looks.append(parameters)
        return []

    monkeypatch.setattr(unaveraged_gradients, "wrappers", wrappers)
    watch = Training().watch
    for _ in range(MOST_LOOKS + 2):
        one = Training()
        one.watch = watch
        one.run()
    assert len(looks) == MOST_LOOKS


@pytest.mark.parametrize(("counts", "told"), [([3, 9], 6), ([3, 3], 0), ([None, 3], None), ([3, None], None)])
def test_collectives_during_the_steps(
    start: Start, monkeypatch: pytest.MonkeyPatch, counts: list[int | None], told: int | None
) -> None:
    start(2)
    monkeypatch.setattr(unaveraged_gradients, "_collectives", lambda: counts.pop(0))
    one = Training()
    wrapper = DistributedDataParallel(one.model)
    assert [record.collectives for record in one.run()] == [told]
    assert wrapper.module is one.model


def test_collectives_are_counted() -> None:
    assert unaveraged_gradients._collectives() in (0, None)
    distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        before = unaveraged_gradients._collectives()
        distributed.all_reduce(torch.ones(1))
        assert before is not None
        assert unaveraged_gradients._collectives() == before + 1
    finally:
        distributed.destroy_process_group()


def test_a_failure_is_told_once(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    start(2)
    one = Training()
    wrapper = DistributedDataParallel(one.model)
    monkeypatch.setattr(unaveraged_gradients, "_digest", lambda _: 1 / 0)
    with pytest.raises(AssertionError):
        one.run()
    assert one.failures == ["gradients that are not averaged: division by zero"]
    assert wrapper.module is one.model
