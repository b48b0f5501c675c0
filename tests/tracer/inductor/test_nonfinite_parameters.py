"""Parameters that become NaN or infinite, and those of programs that skip such steps or mean such values."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from stepscope.tracer.inductor import nonfinite_parameters
from stepscope.tracer.inductor.nonfinite_parameters import MOST_NAMES, MOST_OPTIMIZERS, NonfiniteWatch
from stepscope.tracer.schema.parameters import NonfiniteParameters

NAN, INFINITY = float("nan"), float("inf")


class Training:
    """A small model whose parameters are watched while an optimizer steps."""

    def __init__(self, model: nn.Module | None = None, *more: nn.Parameter) -> None:
        self.told: list[NonfiniteParameters] = []
        self.failures: list[str] = []
        self.recorded = 0

        def failed(where: str, error: BaseException) -> None:
            self.failures.append(f"{where}: {error}")

        self.watch = NonfiniteWatch(self.told.append, failed, lambda: self.recorded)
        self.model = model or nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        self.optimizer = self.watched([*self.model.parameters(), *more])

    def watched(self, parameters: list[Any]) -> torch.optim.Optimizer:
        optimizer = torch.optim.SGD(parameters, lr=0.01)
        optimizer.register_step_pre_hook(lambda one, *_: self.watch.begins(one))
        optimizer.register_step_post_hook(lambda one, *_: self.watch.stepped(one))
        return optimizer

    def run(self, steps: int, loss_of: Callable[[int, Tensor], Tensor]) -> list[NonfiniteParameters]:
        """Train with a loss of the step, counted from 1, and the result of the model, until the recording ends."""
        self.train(steps, loss_of)
        return self.end()

    def train(self, steps: int, loss_of: Callable[[int, Tensor], Tensor]) -> None:
        for step in range(1, steps + 1):
            self.optimizer.zero_grad()
            torch.autograd.backward(loss_of(step, self.model(torch.ones(2, 4))))
            self.optimizer.step()
            self.recorded += 1

    def end(self) -> list[NonfiniteParameters]:
        self.watch.tell()
        assert not self.failures
        return self.told


def plain(_: int, result: Tensor) -> Tensor:
    return result.sum()


def nan_in(bad: int) -> Callable[[int, Tensor], Tensor]:
    return lambda step, result: result.sum() * (NAN if step == bad else 1.0)


@pytest.mark.parametrize(
    ("bad", "steps", "finite"), [(1, 1, 0), (2, 2, 1), (3, 4, 2), (5, 8, 4), (8, 8, 4), (9, 16, 8)]
)
def test_parameters_become_nan(bad: int, steps: int, finite: int) -> None:
    (told,) = Training().run(16, nan_in(bad))
    assert (told.name, told.steps, told.finite_steps, told.is_last, told.is_nan) == ("SGD", steps, finite, False, True)
    assert (told.parameters, told.nonfinite, told.nan_before, told.file) == (4, 4, [], __file__)
    assert told.names == [f"Sequential.{layer}.{name}" for layer in (0, 1) for name in ("weight", "bias")]
    assert (told.first_step, told.last_step) == (max(0, finite - 1), steps - 1)


def test_parameters_that_become_nan_after_the_last_look() -> None:
    (told,) = Training().run(7, nan_in(6))
    assert (told.steps, told.finite_steps, told.is_last) == (7, 4, True)


def test_parameters_of_an_optimizer_that_is_gone() -> None:
    one = Training()
    del one.optimizer
    gc.collect()
    assert one.end() == []


def test_some_parameters_become_nan() -> None:
    one = Training()
    last: Any = one.model.get_submodule("1")
    (told,) = one.run(3, lambda step, result: result.sum() + (last.bias.sum() * (NAN if step == 2 else 1.0)))
    assert (told.parameters, told.nonfinite, told.names) == (4, 1, ["Sequential.1.bias"])


def test_parameters_become_infinite() -> None:
    one = Training()

    def loss_of(step: int, result: Tensor) -> Tensor:
        sums = [parameter.sum() * (INFINITY if step == 4 else 1.0) for parameter in one.model.parameters()]
        return torch.stack(sums).sum() + 0 * result.sum()

    (told,) = one.run(4, loss_of)
    assert (told.nonfinite, told.is_nan) == (4, False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes(dtype: torch.dtype) -> None:
    one = Training(nn.Linear(4, 4), nn.Parameter(torch.ones(3, dtype=dtype)))
    parameter = one.optimizer.param_groups[0]["params"][-1]
    (told,) = one.run(2, lambda step, result: result.sum() + (parameter * (NAN if step == 2 else 1.0)).sum().float())
    assert (told.nonfinite, told.names, told.nonfinite_float16) == (1, [None], int(dtype == torch.float16))


def test_a_norm_that_overflows_is_finite() -> None:
    one = Training(nn.Linear(4, 4), nn.Parameter(torch.full((10,), 3e38)))
    assert one.run(4, plain) == []


def test_only_the_first_names_are_kept() -> None:
    (told,) = Training(nn.Sequential(*(nn.Linear(4, 4) for _ in range(MOST_NAMES)))).run(1, nan_in(1))
    assert (told.nonfinite, len(told.names)) == (2 * MOST_NAMES, MOST_NAMES)


@pytest.mark.parametrize("value", [NAN, INFINITY, -INFINITY])
@pytest.mark.parametrize("is_frozen", [True, False])
def test_a_parameter_that_holds_such_values_from_the_start(value: float, is_frozen: bool) -> None:
    mask = nn.Parameter(torch.full((4,), value), requires_grad=not is_frozen)
    assert Training(nn.Linear(4, 4), mask).run(8, plain) == []


@pytest.mark.parametrize(
    ("rates", "largest"),
    [([0.1, 0.1, 10.0], 10.0), ([0.1, 0.1, 0.9], None), ([0.1, 10.0], None), ([0.1, 0.0, 0.0], None)],
)
def test_the_group_with_a_learning_rate_far_above_the_others(rates: list[float], largest: float | None) -> None:
    one = Training()
    one.optimizer.param_groups[0]["lr"] = rates[0]
    added = [nn.Parameter(torch.ones(2)) for _ in rates[1:]]
    for rate, parameter in zip(rates[1:], added, strict=True):
        one.optimizer.add_param_group({"params": [parameter], "lr": rate})
    (told,) = one.run(1, nan_in(1))
    known = (len(rates), largest, 0.1, [None]) if largest else (None,) * 4
    assert (told.groups, told.largest_rate, told.median_rate, told.largest_rate_names) == known


def test_a_group_that_is_added_later() -> None:
    one = Training()
    one.train(2, plain)
    one.optimizer.add_param_group({"params": [nn.Parameter(torch.full((4,), -INFINITY))]})
    assert one.run(8, plain) == []


def test_a_parameter_that_held_nan_before_spreads_it() -> None:
    last = nn.Linear(4, 4)
    model = nn.Sequential(nn.Linear(4, 4), last)
    with torch.no_grad():
        last.bias[0] = NAN
    (told,) = Training(model).run(2, lambda _, result: result.square().sum())
    assert (told.steps, told.finite_steps, told.nan_before) == (1, 0, ["Sequential.1.bias"])
    assert told.infinite_before == 0
    assert "Sequential.1.bias" not in told.names


def test_a_mask_of_infinities_that_becomes_nan() -> None:
    mask = nn.Parameter(torch.full((4,), -INFINITY))
    one = Training(nn.Linear(4, 4), mask)
    (told,) = one.run(2, lambda _, result: result.sum() + (mask * NAN).sum())
    assert (told.nonfinite, told.is_nan, told.nan_before, told.infinite_before) == (1, True, [], 1)


def test_buffers_do_not_count() -> None:
    model = nn.Linear(4, 4)
    model.register_buffer("mask", torch.full((4,), -INFINITY))
    assert Training(model).run(8, lambda _, result: (result + model.get_buffer("mask").exp()).sum()) == []


def test_steps_that_the_scaler_skips() -> None:
    one = Training()
    scaler = GradScaler("cpu", init_scale=1024.0)
    for step in range(1, 9):
        one.optimizer.zero_grad()
        torch.autograd.backward(scaler.scale(nan_in(3 if step < 5 else 5)(step, one.model(torch.ones(2, 4)))))
        scaler.step(one.optimizer)
        scaler.update()
    assert scaler.get_scale() < 1024.0
    assert one.end() == []


def test_a_loss_that_the_program_skips() -> None:
    one = Training()
    for step in range(1, 9):
        one.optimizer.zero_grad()
        loss = nan_in(3 if step < 5 else 5)(step, one.model(torch.ones(2, 4)))
        if not torch.isfinite(loss):
            continue
        torch.autograd.backward(loss)
        one.optimizer.step()
    assert one.end() == []


def test_each_optimizer_is_told_once() -> None:
    one = Training()
    other = one.watched([nn.Parameter(torch.ones(3))])
    other.step()
    assert len(one.run(16, nan_in(2))) == 1


def test_programs_with_many_optimizers_are_not_looked_at() -> None:
    one = Training()
    others = [one.watched([nn.Parameter(torch.ones(3))]) for _ in range(MOST_OPTIMIZERS)]
    for other in others:
        other.step()
    assert one.run(2, nan_in(1)) == []


def test_looks_that_take_long_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nonfinite_parameters, "FREE_NS", -(2**62))
    assert Training().run(4, nan_in(2)) == []


@pytest.mark.parametrize("taken_ns", [0, 2 * nonfinite_parameters.FREE_NS])
def test_the_reads_of_each_parameter_count_as_time(monkeypatch: pytest.MonkeyPatch, taken_ns: int) -> None:
    clock, bad = [1], nonfinite_parameters._bad

    def slow(read: Any) -> Any:
        clock[0] += taken_ns
        return bad(read)

    monkeypatch.setattr(nonfinite_parameters, "perf_counter_ns", lambda: clock[0])
    monkeypatch.setattr(nonfinite_parameters, "_bad", slow)
    mask = nn.Parameter(torch.full((4,), -INFINITY))
    assert len(Training(nn.Linear(4, 4), mask).run(4, nan_in(2))) == (not taken_ns)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let the program appear to use CUDA, with no graph being recorded and no reports of waits."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    return monkeypatch


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_no_look_waits_while_the_program_has_waits_reported(cuda: pytest.MonkeyPatch, mode: int) -> None:
    cuda.setattr(torch.cuda, "get_sync_debug_mode", lambda: mode)
    assert len(Training().run(3, nan_in(3))) == (mode == 0)


def test_waits_that_are_reported_for_some_steps(cuda: pytest.MonkeyPatch) -> None:
    one = Training()
    one.train(1, plain)
    with cuda.context() as during:
        during.setattr(torch.cuda, "get_sync_debug_mode", lambda: 2)
        one.train(2, nan_in(1))
    (told,) = one.end()
    assert (told.steps, told.finite_steps, told.is_last) == (3, 1, True)


@pytest.mark.parametrize("is_recording", [False, True])
def test_the_recording_ends_while_a_graph_is_recorded(cuda: pytest.MonkeyPatch, is_recording: bool) -> None:
    one = Training()
    one.train(3, nan_in(3))
    cuda.setattr(torch.cuda, "is_current_stream_capturing", lambda: is_recording)
    assert len(one.end()) == (not is_recording)


def test_tensors_that_cannot_be_read() -> None:
    strange = [nn.Parameter(torch.ones(3, device="meta")), nn.Parameter(torch.ones(0))]
    freed = nn.Parameter(torch.ones(3))
    freed.untyped_storage().resize_(0)
    assert Training(nn.Linear(4, 4), *strange, freed).run(4, plain) == []


def test_the_local_part_of_a_distributed_tensor() -> None:
    class Local(Tensor):
        """A subclass with a tensor of this rank, as `DTensor` has it."""

    part = torch.ones(3).as_subclass(Local).requires_grad_()
    part._local_tensor = torch.ones(3)  # type: ignore[attr-defined]
    one = Training(nn.Linear(4, 4), part)  # type: ignore[arg-type]
    one.train(2, plain)
    part._local_tensor.fill_(NAN)  # type: ignore[attr-defined]
    (told,) = one.run(2, plain)
    assert (told.nonfinite, told.parameters, told.names) == (1, 3, [None])


def test_the_program_keeps_its_modes_and_gradients() -> None:
    one = Training()
    with torch.device("meta"), torch.autocast("cpu"):
        one.optimizer.step()
    assert all(parameter.grad is None for parameter in one.model.parameters())
    assert one.end() == []


def test_a_forked_child_tells_of_its_own_steps() -> None:
    one = Training()
    one.optimizer.step()
    one.watch.after_fork()
    assert one.end() == []


def test_a_failure_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Training()
    monkeypatch.setattr(nonfinite_parameters, "_readable", lambda _: 1 / 0)
    one.optimizer.step()
    one.optimizer.step()
    assert one.failures == ["parameters that become NaN or infinite: division by zero"]
