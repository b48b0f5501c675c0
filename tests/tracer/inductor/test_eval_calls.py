"""Calls of `Module.eval` are noted with their lines; the method stays what it was for everybody else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.nn import Dropout, Linear, Module, Sequential

from stepscope.tracer.inductor import eval_calls
from stepscope.tracer.inductor.eval_calls import EvalCalls
from stepscope.tracer.schema.states import EvalCall

ORIGINAL = Module.eval


class Calls:
    """What is noted while the method is wrapped."""

    def __init__(self) -> None:
        self.told: list[EvalCall] = []
        self.failures: list[BaseException] = []
        self.watch = EvalCalls(self.told.append, lambda _, error: self.failures.append(error))


@pytest.fixture
def calls() -> Iterator[Calls]:
    one = Calls()
    one.watch.attach()
    yield one
    one.watch.detach()
    assert Module.eval is ORIGINAL


def test_a_call_has_its_line(calls: Calls) -> None:
    model = Sequential(Linear(2, 2), Dropout())
    assert model.eval() is model
    assert not model[1].training
    (one,) = calls.told
    assert one.file == __file__
    assert calls.failures == []


def test_a_call_that_names_the_module(calls: Calls) -> None:
    model = Linear(2, 2)
    assert Module.eval(self=model) is model
    assert len(calls.told) == 1


def test_only_calls_that_change_the_mode_count(calls: Calls) -> None:
    model = Linear(2, 2).eval()
    model.eval()
    model.train(False)
    assert len(calls.told) == 1


def test_only_the_first_calls_are_noted(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Linear(2, 2)
    for _ in range(eval_calls.MOST_CALLS + 3):
        model.train()
        model.eval()
    assert len(calls.told) == eval_calls.MOST_CALLS


def test_a_module_without_a_mode_is_left_to_pytorch(calls: Calls) -> None:
    class Odd(Module):
        @property
        def training(self) -> bool:
            raise RuntimeError("no mode")

        @training.setter
        def training(self, mode: bool) -> None: ...

    Odd().eval()
    assert [str(error) for error in calls.failures] == ["no mode"]


def test_a_wrapper_of_somebody_else_stays(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Module.eval
    with monkeypatch.context() as patched:
        patched.setattr(Module, "eval", lambda module: ours(module))
        theirs = Module.eval
        calls.watch.detach()
        assert Module.eval is theirs
        Linear(2, 2).eval()
        assert calls.told == []
    Module.eval = ORIGINAL  # type: ignore[method-assign]


def test_compiled_code_may_call_it(calls: Calls) -> None:
    model = Sequential(Linear(2, 2), Dropout())

    @torch.compile(fullgraph=True, backend="eager")
    def evaluated(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = model.eval()(x)
        return result

    x = torch.ones(3, 2)
    assert torch.equal(evaluated(x), model.eval()(x))
    assert calls.failures == []
