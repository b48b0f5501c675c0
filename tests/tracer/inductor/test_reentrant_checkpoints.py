"""Modules that run in reentrant checkpoints without an input that requires a gradient."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointFunction, checkpoint

from stepscope.tracer.inductor.missing_gradients import STEPS, GradientWatch
from stepscope.tracer.inductor.reentrant_checkpoints import ReentrantCheckpoints
from stepscope.tracer.schema.steps import MissingGradients

LAYER, HEAD = nn.Linear(3, 3), nn.Linear(3, 1)


def failed(where: str, error: BaseException) -> None:
    raise AssertionError(where) from error


@pytest.fixture
def notes() -> Iterator[ReentrantCheckpoints]:
    attached = ReentrantCheckpoints(failed)
    attached.attach()
    yield attached
    attached.detach()


def called_by_closure(x: Tensor) -> Tensor:
    layer = LAYER

    def run(x: Tensor) -> Tensor:
        return layer(x)  # type: ignore[no-any-return]

    return checkpoint(run, x, use_reentrant=True)  # type: ignore[no-any-return]


RUNS: list[Callable[[Tensor], Tensor]] = [
    lambda x: checkpoint(LAYER, x, use_reentrant=True),
    lambda x: checkpoint(LAYER.forward, x, use_reentrant=True),
    lambda x: checkpoint(functools.partial(nn.Module.__call__, LAYER), x, use_reentrant=True),
    called_by_closure,
]


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.filterwarnings("ignore:None of the inputs")
def test_a_module_whose_checkpoint_has_no_input_with_a_gradient(
    notes: ReentrantCheckpoints, run: Callable[[Tensor], Tensor]
) -> None:
    assert notes.holding(LAYER.parameters()) is None
    run(torch.ones(2, 3))
    found = notes.holding([*LAYER.parameters(), *HEAD.parameters()])
    assert found is not None
    assert (found[0], found[1][0]) == (2, __file__)
    assert notes.holding(HEAD.parameters()) is None


@pytest.mark.filterwarnings("ignore:None of the inputs")
@pytest.mark.parametrize("is_reentrant", [True, False])
def test_healthy_checkpoints(notes: ReentrantCheckpoints, is_reentrant: bool) -> None:
    with torch.no_grad():
        checkpoint(LAYER, torch.ones(2, 3), use_reentrant=is_reentrant)
    checkpoint(LAYER, torch.ones(2, 3, requires_grad=is_reentrant), use_reentrant=is_reentrant)
    assert notes.holding(LAYER.parameters()) is None


@pytest.mark.filterwarnings("ignore:None of the inputs")
def test_a_model_that_also_runs_elsewhere_is_not_named(notes: ReentrantCheckpoints) -> None:
    model = nn.Sequential(LAYER, HEAD)
    checkpoint(lambda x: model[0](x), torch.ones(2, 3), use_reentrant=True)
    assert notes.holding(LAYER.parameters()) is None
    assert notes.holding(model.parameters()) is not None


def test_nothing_is_left_of_the_wrapper() -> None:
    before, notes = vars(CheckpointFunction)["forward"], ReentrantCheckpoints(failed)
    notes.attach()
    assert vars(CheckpointFunction)["forward"] is not before
    notes.detach()
    assert vars(CheckpointFunction)["forward"] is before


def test_the_warning_of_pytorch_keeps_its_place(notes: ReentrantCheckpoints) -> None:
    with pytest.warns(UserWarning, match="None of the inputs") as said:
        checkpoint(LAYER, torch.ones(2, 3), use_reentrant=True)
    assert said[0].lineno > CheckpointFunction.forward.__code__.co_firstlineno
    notes.detach()
    with pytest.warns(UserWarning, match="None of the inputs") as again:
        checkpoint(LAYER, torch.ones(2, 3), use_reentrant=True)
    assert (again[0].filename, again[0].lineno) == (said[0].filename, said[0].lineno)


@pytest.mark.filterwarnings("ignore:None of the inputs")
def test_the_record_of_missing_gradients_names_the_checkpoint(notes: ReentrantCheckpoints) -> None:
    told: list[MissingGradients] = []
    watch = GradientWatch(told.append, failed, notes.holding)
    optimizer = torch.optim.SGD([*LAYER.parameters(), *HEAD.parameters()], lr=0.0)
    for _ in range(STEPS):
        HEAD(checkpoint(LAYER, torch.ones(2, 3), use_reentrant=True)).sum().backward()
        watch.begins(optimizer)
    assert [(one.missing, one.checkpointed, one.checkpoint_file) for one in told] == [(2, 2, __file__)]
