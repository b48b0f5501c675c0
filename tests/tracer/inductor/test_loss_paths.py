"""Paths from results of compiled code to losses are noted once, and `backward` stays what it was for everybody else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from stepscope.tracer.inductor import loss_paths
from stepscope.tracer.inductor.loss_paths import LossPaths
from stepscope.tracer.schema.losses import LossPath

ORIGINAL = torch.autograd.backward


class Paths:
    """What is noted while `backward` is wrapped."""

    def __init__(self) -> None:
        self.told: list[LossPath] = []
        self.failures: list[BaseException] = []
        self.watch = LossPaths(self.told.append, lambda _, error: self.failures.append(error))


@pytest.fixture
def paths() -> Iterator[Paths]:
    one = Paths()
    one.watch.attach()
    yield one
    one.watch.detach()
    assert torch.autograd.backward is ORIGINAL
    assert one.failures == []


def compiled() -> nn.Module:
    torch._dynamo.reset()
    return torch.compile(nn.Linear(4, 1), backend="aot_eager")  # type: ignore[return-value]


def test_a_path_is_noted_once(paths: Paths) -> None:
    model = compiled()
    for _ in range(3):
        (model(torch.ones(5, 4)) - torch.ones(5, 1)).square().mean().backward()
    (one,) = paths.told
    assert one.size == [5, 1]
    assert one.nodes == ["SubBackward0", "PowBackward0", "MeanBackward0"]
    assert one.sizes == [[5, 1], [5, 1], []]
    assert one.operands == [1, 1, 1]
    assert one.file == __file__


def test_each_result_has_a_path(paths: Paths) -> None:
    model = compiled()
    one, other = model(torch.ones(5, 4)), model(torch.ones(6, 4))
    torch.autograd.backward(tensors=[one.sum() + other.mean()])
    assert [(path.size, path.nodes) for path in paths.told] == [
        ([5, 1], ["SumBackward0", "AddBackward0"]),
        ([6, 1], ["MeanBackward0", "AddBackward0"]),
    ]
    assert paths.told[0].operands == [1, 2]


def test_programs_without_compiled_code_have_no_path(paths: Paths) -> None:
    nn.Linear(4, 1)(torch.ones(5, 4)).sum().backward()
    assert paths.told == []


def test_the_loss_may_be_computed_by_compiled_code(paths: Paths) -> None:
    compiled()(torch.ones(1, 4)).backward(torch.ones(1, 1))
    assert paths.told == []


def test_long_paths_are_left_out(paths: Paths) -> None:
    result = compiled()(torch.ones(5, 4))
    for _ in range(loss_paths.MOST_LENGTH):
        result = result + 1
    result.sum().backward()
    assert paths.told == []


def test_only_the_first_calls_are_looked_at(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    model = compiled()
    for size in range(1, loss_paths.MOST_CALLS + 4):
        model(torch.ones(size + 1, 4)).sum().backward()
    assert len(paths.told) == loss_paths.MOST_CALLS


def test_errors_of_a_call_are_those_of_pytorch(paths: Paths) -> None:
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.ones(3).sum().backward()  # type: ignore[no-untyped-call]
    with pytest.raises(TypeError):
        torch.autograd.backward()  # type: ignore[call-arg]


def test_compiled_code_may_call_it(paths: Paths) -> None:
    model = nn.Linear(4, 1)
    torch._dynamo.reset()

    @torch.compile(backend="eager")
    def step(x: Tensor) -> None:
        loss = model(x).sum()
        torch.autograd.backward(loss)

    step(torch.ones(5, 4))
    assert model.weight.grad is not None
    assert torch.equal(model.weight.grad, torch.full((1, 4), 5.0))


def test_a_wrapper_of_somebody_else_stays(paths: Paths) -> None:
    ours = torch.autograd.backward
    torch.autograd.backward = lambda *args, **named: ours(*args, **named)
    theirs, model = torch.autograd.backward, compiled()
    paths.watch.detach()
    assert torch.autograd.backward is theirs
    model(torch.ones(5, 4)).sum().backward()
    assert paths.told == []
    torch.autograd.backward = ORIGINAL
