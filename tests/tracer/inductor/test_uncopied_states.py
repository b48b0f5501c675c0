"""Kept tensors of a `state_dict()` that are no copies, as the wrappers of the recorder see them."""

from __future__ import annotations

import copy
import gc
import subprocess
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import _patch_model_state_dict

from stepscope.tracer.inductor.state_calls import StateCalls
from stepscope.tracer.schema.states import UncopiedState

pytestmark = pytest.mark.filterwarnings("ignore")

ORIGINALS = nn.Module.state_dict, nn.Module.load_state_dict
State = dict[str, Any]


class Training:
    """A small model and its optimizer while loaded weights are watched."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.calls = StateCalls()
        self.calls.watch.begin(self.told.append, self._failed)
        self.calls.attach()
        self.model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
        self.optimizer = self.optimizer_of(self.model)

    def optimizer_of(self, model: nn.Module) -> torch.optim.Optimizer:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.register_step_post_hook(lambda one, *_: self.calls.watch.stepped(one))
        return optimizer

    def step(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        optimizer = optimizer or self.optimizer
        for one in optimizer.param_groups[0]["params"]:
            one.grad = torch.ones_like(one)
        optimizer.step()

    @staticmethod
    def _failed(where: str, error: BaseException) -> None:
        raise AssertionError(where) from error


@pytest.fixture
def training() -> Iterator[Training]:
    one = Training()
    yield one
    one.calls.detach()
    assert (nn.Module.state_dict, nn.Module.load_state_dict) == ORIGINALS


@pytest.mark.parametrize(
    "keep",
    [
        lambda state: state,
        dict,
        OrderedDict,
        copy.copy,
        lambda state: {k: v for k, v in state.items() if k != "1.bias"},
    ],
)
def test_references_to_the_best_weights(training: Training, keep: Callable[[Any], State]) -> None:
    for _ in range(3):
        training.step()
        best = keep(training.model.state_dict())
    training.step()
    training.step()
    training.model.load_state_dict(best, strict=False)
    (found,) = training.told
    assert isinstance(found, UncopiedState)
    assert (found.module, found.optimizer, found.steps) == ("Sequential", "SGD", 2)
    assert found.parameters == sum(key in best for key, _ in training.model.named_parameters())
    assert (found.saved_file, found.file) == (__file__, __file__)
    assert found.saved_line is not None
    assert found.line is not None
    assert found.line > found.saved_line
    training.step()
    training.model.load_state_dict(best, strict=False)
    assert len(training.told) == 2  # this is another line


def test_a_compiled_model(training: Training) -> None:
    compiled: Any = torch.compile(training.model)
    best, inner = compiled.state_dict(), compiled._orig_mod.state_dict()
    training.step()
    compiled.load_state_dict(best)
    training.step()
    compiled._orig_mod.load_state_dict(inner)
    assert [one.module for one in training.told] == ["Sequential", "Sequential"]


def clones(state: State) -> State:
    return {key: one.clone() for key, one in state.items()}


@pytest.mark.parametrize("keep", [copy.deepcopy, clones])
def test_copies(training: Training, keep: Callable[[Any], State]) -> None:
    best = keep(training.model.state_dict())
    training.step()
    training.model.load_state_dict(best)
    assert training.told == []


def test_no_change_in_between(training: Training) -> None:
    training.step()
    state = training.model.state_dict()
    training.model.load_state_dict(state)
    training.model.load_state_dict(state)
    training.model.load_state_dict(training.model.state_dict())
    training.step(training.optimizer_of(nn.Linear(2, 2)))
    training.model.load_state_dict(state)
    assert training.told == []


def test_tensors_of_another_model_or_for_another_one(training: Training) -> None:
    other, state = copy.deepcopy(training.model), training.model.state_dict()
    training.step()
    other.load_state_dict(state)
    mixed = {**state, "0.weight": torch.ones(3, 3)}
    training.model.load_state_dict(mixed)
    training.model.load_state_dict(state, assign=True)
    assert training.told == []


def test_a_checkpoint_that_is_read_in_place(training: Training) -> None:
    state = training.model.state_dict()
    training.step()
    for one in state.values():
        one.zero_()
    training.model.load_state_dict(state)
    state = training.model.state_dict()
    rate, training.optimizer.param_groups[0]["lr"] = training.optimizer.param_groups[0]["lr"], torch.tensor(0.0)
    training.step()
    training.model.load_state_dict(state)
    training.optimizer.param_groups[0]["lr"] = rate
    assert training.told == []


def test_nothing_is_kept_alive_and_other_arguments_pass(training: Training) -> None:
    state = training.model.state_dict()
    alive = [weakref.ref(one) for one in state.values()]
    assert [weakref.getweakrefs(one) for one in training.model.parameters()] == [[]] * 4
    del state
    gc.collect()
    assert {one() for one in alive} == {None}
    assert next(iter(training.model.state_dict(prefix="a."))) == "a.0.weight"
    assert training.model.state_dict(keep_vars=True)["0.weight"] is training.model.get_parameter("0.weight")
    given: State = {}
    assert training.model.state_dict(destination=given) is given
    training.step()
    training.model.load_state_dict(given)
    assert training.told == []


def test_calls_that_name_the_module(training: Training) -> None:
    state = nn.Module.state_dict(self=training.model)
    training.step()
    nn.Module.load_state_dict(self=training.model, state_dict=state)
    assert len(training.told) == 1


def test_a_model_that_distributed_checkpoints_patch(training: Training) -> None:
    _patch_model_state_dict(training.model)
    state = training.model.state_dict()
    assert [*state] == [*nn.Module.state_dict(training.model)]
    training.model.load_state_dict(copy.deepcopy(state))


@pytest.fixture
def swapping() -> Iterator[None]:
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(False)


def test_buffers_that_are_swapped(training: Training, swapping: None) -> None:
    class Own(nn.BatchNorm1d):
        def _save_to_state_dict(self, destination: State, prefix: str, keep_vars: bool) -> None:
            super()._save_to_state_dict(destination, prefix, True)

    model, new = nn.Sequential(nn.Linear(3, 3), Own(3)), copy.deepcopy(training.model.state_dict())
    kept = model.state_dict(), model.state_dict(keep_vars=True), model.state_dict(None, "", True)  # type: ignore[call-overload]
    model.load_state_dict(new)
    assert [[*state] for state in kept] == [[*new]] * 3
    assert torch.equal(model.get_parameter("0.weight"), new["0.weight"])


CALLS: list[Callable[[nn.Module], object]] = [
    lambda model: model.state_dict(),
    lambda model: model.load_state_dict({}, strict=False),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_watch_that_cannot_be_imported(call: Callable[[nn.Module], object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "stepscope.tracer.inductor.loaded_states", None)
    calls = StateCalls()
    calls.attach()
    try:
        call(nn.Linear(2, 2))
        assert (nn.Module.state_dict, nn.Module.load_state_dict) == ORIGINALS
    finally:
        calls.detach()


AT_EXIT = """
import torch
from stepscope.tracer.inductor.state_calls import watch_and_wait

class Saver:
    def __init__(self):
        self.model = torch.nn.Linear(2, 2)

    def __del__(self):
        print([*self.model.state_dict()])

watch_and_wait()
saver = Saver()
"""


@pytest.mark.slow
def test_a_call_while_the_interpreter_exits() -> None:
    done = subprocess.run([sys.executable, "-c", AT_EXIT], capture_output=True, text=True, timeout=120, check=True)
    assert "Exception" not in done.stderr
    assert done.stdout.strip() == "['weight', 'bias']"
