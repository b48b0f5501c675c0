"""Gradients that are cleared before a step uses them, and what clears gradients for a reason."""

from __future__ import annotations

import gc
import inspect
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Optimizer
from torch.overrides import TorchFunctionMode

from stepscope.tracer.inductor.cleared_gradients import LEAST_STEPS, MOST_OPTIMIZERS, ClearedWatch
from stepscope.tracer.inductor.clearing_calls import ClearingCalls
from stepscope.tracer.schema.steps import ClearedGradients

STEPS = LEAST_STEPS + 1


def failed(where: str, error: BaseException) -> None:
    raise AssertionError(where) from error


class _Recording:
    """A watch, and what it has written."""

    def __init__(self) -> None:
        self.told: list[ClearedGradients] = []
        self.watch = ClearedWatch(self.told.append, failed)
        self.calls = ClearingCalls(self.watch.clears, self.watch.cleared)
        self.calls.attach()

    def backward(self, loss: torch.Tensor, *frames: str) -> None:
        for frame in frames or ("model",):
            self.watch.look(frame, "backward")
        torch.autograd.backward(loss)

    def step(self, optimizer: Optimizer) -> None:
        optimizer.step()
        self.watch.stepped(optimizer)

    def end(self) -> list[ClearedGradients]:
        self.calls.detach()
        self.watch.tell()
        return self.told


@pytest.fixture
def recording() -> Iterator[_Recording]:
    originals = Optimizer.zero_grad, nn.Module.zero_grad
    yield (started := _Recording())
    started.calls.detach()
    assert (Optimizer.zero_grad, nn.Module.zero_grad) == originals


class _Calls(TorchFunctionMode):
    """What a mode of the program sees."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(function)
        return function(*args, **(kwargs or {}))


def model() -> tuple[nn.Linear, SGD]:
    net = nn.Linear(3, 2)
    return net, SGD(net.parameters(), lr=0.1)


def loss_of(net: nn.Module) -> torch.Tensor:
    result: torch.Tensor = net(torch.ones(4, 3)).sum()
    return result


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("passes", [2, 4])
@pytest.mark.parametrize("of_module", [True, False])
def test_clearing_between_passes_is_told(
    recording: _Recording, set_to_none: bool, passes: int, of_module: bool
) -> None:
    net, optimizer = model()
    for _ in range(STEPS):
        for _ in range(passes):
            (net if of_module else optimizer).zero_grad(set_to_none=set_to_none)
            recording.backward(loss_of(net))
        recording.step(optimizer)
    (found,) = recording.end()
    assert (found.name, found.steps, found.cleared, found.steps_without) == ("SGD", STEPS - 1, passes - 1, 0)
    assert found.zero_grad_file == found.file == __file__
    assert None not in (found.zero_grad_line, found.line)


def test_gradients_of_other_modules_do_not_count(recording: _Recording) -> None:
    net, optimizer = model()
    other = nn.Linear(3, 2)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for _ in range(2):
            recording.backward(loss_of(net) + loss_of(other))
            other.zero_grad()
        recording.step(optimizer)
    assert recording.end() == []


def test_several_optimizers_of_one_model_are_told(recording: _Recording) -> None:
    net = nn.Linear(3, 2)
    optimizers = [SGD([one], lr=0.1) for one in net.parameters()]
    for _ in range(STEPS):
        for _ in range(2):
            for one in optimizers:
                one.zero_grad()
            recording.backward(loss_of(net))
        for one in optimizers:
            recording.step(one)
    assert [one.cleared for one in recording.end()] == [1, 1]


@pytest.mark.parametrize(
    "clear", [lambda step, part: part == 0, lambda step, part: part == 0 and step % 2 == 0, lambda step, part: False]
)
def test_accumulation_is_not_told(recording: _Recording, clear: Callable[[int, int], bool]) -> None:
    net, optimizer = model()
    for step in range(STEPS):
        for part in range(4):
            if clear(step, part):
                optimizer.zero_grad()
                optimizer.zero_grad()
            recording.backward(loss_of(net))
        recording.step(optimizer)
    assert recording.end() == []


def test_steps_that_are_left_out_now_and_then_are_not_told(recording: _Recording) -> None:
    """As those of a GradScaler after an infinity."""
    net, optimizer = model()
    for step in range(4 * STEPS):
        optimizer.zero_grad()
        recording.backward(loss_of(net))
        if step % 3:
            recording.step(optimizer)
    assert recording.end() == []


@pytest.mark.parametrize("uses_data", [False, True])
def test_parameters_that_change_between_the_passes_are_not_told(recording: _Recording, uses_data: bool) -> None:
    """As in a step of SAM."""
    net, optimizer = model()
    for _ in range(STEPS):
        optimizer.zero_grad()
        recording.backward(loss_of(net))
        for one in net.parameters():
            if uses_data:
                one.data = one.data + 0.1
            else:
                one.detach().add_(0.1)
        optimizer.zero_grad()
        recording.backward(loss_of(net))
        recording.step(optimizer)
    assert recording.end() == []


@pytest.mark.parametrize("order", ["zero all before each", "judge last", "maker last"])
def test_networks_that_are_trained_against_each_other_are_not_told(recording: _Recording, order: str) -> None:
    (maker, of_maker), (judge, of_judge) = model(), model()
    maker = nn.Linear(3, 3)
    of_maker = SGD(maker.parameters(), lr=0.1)

    def made() -> torch.Tensor:
        result: torch.Tensor = judge(maker(torch.ones(4, 3))).sum()
        return result

    for _ in range(STEPS):
        if order == "zero all before each":
            for loss, optimizer in ((made, of_maker), (lambda: loss_of(judge), of_judge)):
                of_maker.zero_grad()
                of_judge.zero_grad()
                recording.backward(loss(), "judge")
                recording.step(optimizer)
        elif order == "judge last":
            of_maker.zero_grad()
            of_judge.zero_grad()
            recording.backward(made(), "judge", "maker")
            of_judge.zero_grad()
            recording.backward(loss_of(judge), "judge")
            recording.step(of_maker)
            recording.step(of_judge)
        else:
            of_judge.zero_grad()
            recording.backward(loss_of(judge), "judge")
            recording.step(of_judge)
            of_maker.zero_grad()
            recording.backward(made(), "judge", "maker")
            recording.step(of_maker)
    assert recording.end() == []


def captured(given: torch.Tensor) -> Any:
    """A captured graph with this input."""
    graph = torch.fx.Graph()
    source = SimpleNamespace(example=given, source=SimpleNamespace(name="L['x']"))
    graph.placeholder("x").meta["grapharg"] = source
    return SimpleNamespace(graph=graph)


@pytest.mark.parametrize("is_adversarial", [True, False])
@pytest.mark.parametrize("is_computed", [True, False])
def test_gradients_of_inputs_end_the_watch(recording: _Recording, is_adversarial: bool, is_computed: bool) -> None:
    """As those for adversarial examples; those of an input that another graph computes from parameters do not."""
    net, optimizer = model()
    of_parameter = torch.ones(3) * net.weight
    given = torch.ones(4, 3, requires_grad=True) if is_adversarial else of_parameter
    if is_computed:
        given = (given + 1).relu()
    recording.watch.captured(captured(given))
    for _ in range(STEPS):
        for _ in range(2):
            optimizer.zero_grad()
            recording.backward(loss_of(net))
        recording.step(optimizer)
    assert len(recording.end()) == (not is_adversarial)


def test_passes_of_other_code_are_not_told(recording: _Recording) -> None:
    net, optimizer = model()
    for _ in range(STEPS):
        for frame in ("first", "second"):
            optimizer.zero_grad()
            recording.backward(loss_of(net), frame)
        recording.step(optimizer)
    assert recording.end() == []


def test_eager_passes_are_not_told(recording: _Recording) -> None:
    net, optimizer = model()
    for _ in range(STEPS):
        for _ in range(2):
            optimizer.zero_grad()
            torch.autograd.backward(loss_of(net))
        recording.step(optimizer)
    assert recording.end() == []


def test_an_optimizer_that_raises_is_left_alone(recording: _Recording) -> None:
    class Idle(Optimizer):
        def __init__(self) -> None:
            self.param_groups = []

        def zero_grad(self, set_to_none: bool = True) -> None:
            raise KeyError(set_to_none)

    idle = Idle()
    for _ in range(STEPS):
        recording.watch.stepped(idle)
        with pytest.raises(KeyError):
            idle.zero_grad()
    assert recording.end() == []


@pytest.mark.parametrize("is_more", [False, True])
def test_many_optimizers_end_the_watch(recording: _Recording, is_more: bool) -> None:
    nets = [model() for _ in range(MOST_OPTIMIZERS + is_more)]
    for _ in range(STEPS):
        for net, optimizer in nets:
            for _ in range(2):
                optimizer.zero_grad()
                recording.backward(loss_of(net))
            recording.step(optimizer)
    assert len(recording.end()) == (0 if is_more else MOST_OPTIMIZERS)


def test_zero_grad_keeps_its_signature_and_its_exceptions(recording: _Recording) -> None:
    assert list(inspect.signature(Optimizer.zero_grad).parameters) == ["self", "set_to_none"]
    _, optimizer = model()
    with pytest.raises(TypeError):
        optimizer.zero_grad(none=True)  # type: ignore[call-arg]
    optimizer.zero_grad(False)
    assert recording.end() == []


def test_modes_of_the_program_see_only_its_own_calls(recording: _Recording) -> None:
    net, optimizer = model()
    recording.watch.stepped(optimizer)
    recording.backward(loss_of(net))
    recording.watch.stepped(optimizer)
    graph = captured(torch.ones(3))
    with _Calls() as looks:
        for _ in range(2):
            recording.watch.stepped(optimizer)
        recording.watch.captured(graph)
    assert looks.seen == []
    with _Calls() as watched:
        optimizer.zero_grad()
    recording.end()
    torch.autograd.backward(loss_of(net))
    with _Calls() as alone:
        optimizer.zero_grad()
    assert len(watched.seen) == len(alone.seen) > 0


def test_a_wrapper_of_another_library_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Optimizer, "zero_grad", Optimizer.zero_grad)
    recording = _Recording()
    ours = Optimizer.zero_grad

    def zero_grad(optimizer: Any, set_to_none: bool = True) -> None:
        ours(optimizer, set_to_none)

    monkeypatch.setattr(Optimizer, "zero_grad", zero_grad)
    recording.calls.detach()
    assert Optimizer.zero_grad is zero_grad
    net, optimizer = model()
    torch.autograd.backward(loss_of(net))
    optimizer.zero_grad()
    assert net.weight.grad is None


def test_nothing_is_kept_alive(recording: _Recording) -> None:
    net, optimizer = model()
    for _ in range(STEPS):
        for _ in range(2):
            optimizer.zero_grad()
            recording.backward(loss_of(net))
        recording.step(optimizer)
    optimizer.zero_grad()
    alive: list[weakref.ref[Any]] = [weakref.ref(one) for one in (net, optimizer, net.weight.untyped_storage())]
    del net, optimizer
    gc.collect()
    assert [one() for one in alive] == [None] * 3
    assert len(recording.end()) == 1
