"""Paths from results of compiled code to losses are noted once, and `backward` stays what it was for everybody else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from stepscope.tracer.inductor import loss_paths
from stepscope.tracer.inductor.loss_paths import LossPaths
from stepscope.tracer.schema.losses import LossPath, SummedLosses

AUTOGRAD: Any = torch.autograd
ORIGINAL = AUTOGRAD._engine_run_backward


class Paths:
    """What is noted while backward passes are wrapped."""

    def __init__(self) -> None:
        self.told: list[LossPath] = []
        self.failures: list[BaseException] = []
        self.sums: list[SummedLosses] = []
        self.watch = LossPaths(self._write, lambda _, error: self.failures.append(error))

    def _write(self, record: LossPath | SummedLosses) -> None:
        if isinstance(record, LossPath):
            self.told.append(record)
        else:
            self.sums.append(record)


@pytest.fixture
def paths() -> Iterator[Paths]:
    one = Paths()
    one.watch.attach()
    yield one
    one.watch.detach()
    assert AUTOGRAD._engine_run_backward is ORIGINAL
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


def test_a_result_may_be_used_more_than_once(paths: Paths) -> None:
    result = compiled()(torch.ones(5, 4))
    ((result - 1).mean() + (result - result.T).abs().mean()).backward()
    assert [path.uses for path in paths.told] == [3]


def test_gradients_may_be_asked_for_by_others(paths: Paths) -> None:
    model, weight = compiled(), torch.ones(2, requires_grad=True)
    torch.autograd.grad(model(torch.ones(5, 4)).sum(), [*model.parameters()])
    AUTOGRAD.backward(loss for loss in [(weight * 2).sum()])
    torch.autograd.backward([torch.autograd.graph.get_gradient_edge((weight * 2).sum())])
    assert torch.equal(weight.grad, torch.full((2,), 4.0))  # type: ignore[arg-type]
    assert [path.nodes for path in paths.told] == [["SumBackward0"]]


def test_a_class_of_the_program_is_left_alone(paths: Paths) -> None:
    class Own(Tensor):
        asked: ClassVar[list[str]] = []

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            cls.asked.append(getattr(func, "__name__", ""))
            return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]

    asked = []
    for _ in range(2):
        Own.asked.clear()
        loss = torch.ones(2, requires_grad=True).as_subclass(Own).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        asked.append([*Own.asked])
        paths.watch.detach()
    assert asked[0] == asked[1]
    paths.watch.attach()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_sizes_of_nested_tensors_are_left_out(paths: Paths) -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], requires_grad=True)
    result = compiled()(torch.ones(1, 4)).reshape(())
    (torch.nested.to_padded_tensor(nested * 2, 0.0).sum() * result).backward()
    assert [path.size for path in paths.told] == [[1, 1]]


def test_a_forked_child_begins_anew(paths: Paths) -> None:
    model = compiled()
    for _ in range(2):
        model(torch.ones(5, 4)).sum().backward()
        paths.watch.after_fork()
    assert len(paths.told) == 2


def added(model: nn.Module, losses: int) -> Tensor:
    return sum((model(torch.ones(size + 1, 4)).mean() / 3 for size in range(losses)), torch.zeros(()))


def stacked(model: nn.Module, losses: int) -> Tensor:
    return torch.stack([2 * model(torch.ones(size + 1, 4)).mean() for size in range(losses)]).mean()


def chained(model: nn.Module, losses: int) -> Tensor:
    total, state = torch.zeros(()), torch.ones(3, 4)
    for _ in range(losses):
        result = model(state)
        total, state = total + result.mean(), result.expand(3, 4)
    return total


def on_one_encoder(model: nn.Module, losses: int) -> Tensor:
    encoded = nn.Linear(4, 4)(torch.ones(3, 4))
    return sum((model(encoded).mean() for _ in range(losses)), torch.zeros(()))


def without_compiled_code(model: nn.Module, losses: int) -> Tensor:
    weight = torch.ones(3, requires_grad=True)
    return sum(((weight * size).mean() for size in range(losses)), torch.zeros(()))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize(
    ("loss", "losses", "told"),
    [
        (added, 4, [4]),
        (added, 3, []),
        (stacked, 5, [5]),
        (chained, 4, []),
        (on_one_encoder, 4, []),
        (without_compiled_code, 4, []),
    ],
)
def test_sums_of_losses(paths: Paths, loss: Callable[[nn.Module, int], Tensor], losses: int, told: list[int]) -> None:
    model = compiled()
    for _ in range(2):
        loss(model, losses).backward()  # type: ignore[no-untyped-call]
    assert [one.losses for one in paths.sums] == told
    assert all(one.file == __file__ for one in paths.sums)


def test_a_wrapper_of_somebody_else_stays(paths: Paths) -> None:
    ours, model = AUTOGRAD._engine_run_backward, compiled()
    theirs = lambda *args, **named: ours(*args, **named)  # noqa: E731
    AUTOGRAD._engine_run_backward = theirs
    paths.watch.detach()
    assert AUTOGRAD._engine_run_backward is theirs
    model(torch.ones(5, 4)).sum().backward()
    assert paths.told == []
    AUTOGRAD._engine_run_backward = ORIGINAL


class Scale(torch.autograd.Function):
    """It stores what hides a method of its node."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.name = "scale"
        return 2 * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 2 * gradient


def test_a_function_may_store_anything_on_its_node(paths: Paths) -> None:
    x = torch.ones(3, requires_grad=True)
    Scale.apply(x).sum().backward()  # type: ignore[no-untyped-call]
    assert paths.failures == []
    assert x.grad is not None
