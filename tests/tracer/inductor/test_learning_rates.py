"""Learning rates of optimizers, as the hook of the recorder sees them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch.optim import lr_scheduler

from stepscope.tracer.inductor.learning_rates import RateWatch
from stepscope.tracer.inductor.scheduler_calls import SchedulerCalls
from stepscope.tracer.schema.parameters import LearningRate


def failed(where: str, error: BaseException) -> None:
    raise AssertionError(where) from error


def recorded(rates: Sequence[Any]) -> list[tuple[float | None, float]]:
    """Return the rates before and after each change of which a record is written."""
    found: list[LearningRate] = []
    watch, optimizer = (
        RateWatch(found.append, failed, SchedulerCalls(failed).last),
        torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0),
    )
    for rate in rates:
        optimizer.param_groups[0]["lr"] = rate
        watch.begins(optimizer)
    return [(one.before, one.rate) for one in found]


def test_a_rate_is_recorded_first_and_where_it_has_changed_much() -> None:
    assert recorded([0.001] * 5) == [(None, 0.001)]
    assert recorded([0.001, 0.0015, 40.0, 0.001, 0.001]) == [(None, 0.001), (0.0015, 40.0), (40.0, 0.001)]


def test_a_slow_decay_and_a_warm_up_are_recorded_at_each_factor_of_two() -> None:
    assert recorded([1.0, 0.8, 0.6, 0.4, 0.3]) == [(None, 1.0), (0.6, 0.4)]
    assert recorded([0, 0, 0.1, 0.2, 0.3]) == [(None, 0.0), (0.0, 0.1), (0.1, 0.2)]


def test_a_rate_that_is_a_tensor_is_not_read() -> None:
    assert recorded([torch.tensor(0.1)] * 3) == []


def test_of_several_groups_the_largest_rate_counts_and_of_many_changes_the_first() -> None:
    found: list[LearningRate] = []
    groups: list[dict[str, Any]] = [{"params": [torch.nn.Parameter(torch.ones(1))], "lr": rate} for rate in (0.1, 0.3)]
    watch, optimizer = RateWatch(found.append, failed, SchedulerCalls(failed).last), torch.optim.SGD(groups)
    for step in range(3_000):
        optimizer.param_groups[0]["lr"] = 10.0 if step % 2 else 0.2
        watch.begins(optimizer)
    assert (found[0].rate, found[1].before, len(found)) == (0.3, 0.3, 1_000)
    assert found[0].file == __file__


@pytest.mark.parametrize(
    ("dtype", "options", "expected"),
    [
        (torch.float16, {}, 1e-8),
        (torch.float16, {"eps": 1e-7}, None),
        (torch.float16, {"eps": 0.0}, None),
        (torch.float16, {"fused": True}, None),
        (torch.bfloat16, {}, None),
        (torch.float32, {}, None),
    ],
)
def test_an_eps_that_is_zero_in_float16_is_recorded_once(
    dtype: torch.dtype, options: dict[str, Any], expected: float | None
) -> None:
    found: list[LearningRate] = []
    watch = RateWatch(found.append, failed, SchedulerCalls(failed).last)
    parameter = torch.nn.Parameter(torch.ones(1, dtype=dtype))
    parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.Adam([parameter], lr=1.0, **options)
    for rate in (1.0, 0.1):
        optimizer.param_groups[0]["lr"] = rate
        watch.begins(optimizer)
    assert [one.rounded_eps for one in found] == [expected, None]


class _Own(torch.optim.Adam):
    """An optimizer of the program, which may compute in float32."""


@pytest.mark.parametrize(
    ("kind", "has_gradient", "expected"),
    [
        (torch.optim.RMSprop, True, 1e-8),
        (torch.optim.Adam, False, None),
        (torch.optim.SGD, True, None),
        (torch.optim.Adagrad, True, None),
        (_Own, True, None),
    ],
)
def test_an_eps_counts_where_a_mean_of_squares_may_be_zero(
    kind: Any, has_gradient: bool, expected: float | None
) -> None:
    found: list[LearningRate] = []
    parameter = torch.nn.Parameter(torch.ones(1, dtype=torch.float16))
    if has_gradient:
        parameter.grad = torch.ones_like(parameter)
    RateWatch(found.append, failed, SchedulerCalls(failed).last).begins(kind([parameter], lr=1.0))
    assert [one.rounded_eps for one in found] == [expected]


def test_the_scheduler_that_has_changed_a_rate_is_recorded_with_its_line() -> None:
    found: list[LearningRate] = []
    calls = SchedulerCalls(failed)
    watch, optimizer = RateWatch(found.append, failed, calls.last), torch.optim.SGD([torch.ones(1)], lr=1.0)
    calls.attach()
    warm_up = lr_scheduler.ConstantLR(optimizer, factor=1.0, total_iters=2)
    decay = lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)
    scheduler = lr_scheduler.SequentialLR(optimizer, [warm_up, decay], milestones=[2])
    for _ in range(4):
        watch.begins(optimizer)
        optimizer.step()
        scheduler.step()
    calls.detach()
    first, second = found
    assert (first.scheduler, first.scheduler_file, first.scheduler_line) == (None, None, None)
    line = scheduled_at(test_the_scheduler_that_has_changed_a_rate_is_recorded_with_its_line)
    assert (second.scheduler, second.scheduler_file, second.scheduler_line) == ("SequentialLR", __file__, line)


def scheduled_at(test: Callable[[], None]) -> int:
    lines, first = inspect.getsourcelines(test)
    return first + next(at for at, line in enumerate(lines) if "scheduler.step()" in line)


def test_schedulers_of_the_program_are_as_before_once_the_recorder_is_detached() -> None:
    kinds: tuple[Any, ...] = (lr_scheduler.LRScheduler, lr_scheduler.SequentialLR, lr_scheduler.ReduceLROnPlateau)
    before = [kind.step for kind in kinds]
    calls = SchedulerCalls(failed)
    calls.attach()
    assert [kind.step for kind in kinds] != before
    assert all(inspect.signature(kind.step) == inspect.signature(one) for kind, one in zip(kinds, before, strict=True))
    calls.detach()
    assert [kind.step for kind in kinds] == before


def test_a_compiled_step_of_a_scheduler_runs_as_without_the_recorder() -> None:
    def rates() -> tuple[list[float], int]:
        torch._dynamo.reset()
        counters.clear()
        optimizer = torch.optim.SGD([torch.ones(1)], lr=1.0)
        scheduler = lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)

        @torch.compile(backend="eager")
        def update() -> None:
            optimizer.step()
            scheduler.step()

        found = []
        for _ in range(3):
            update()
            found.append(optimizer.param_groups[0]["lr"])
        return found, sum(counters["graph_break"].values())

    plain = rates()
    calls = SchedulerCalls(failed)
    calls.attach()
    assert rates() == plain
    calls.detach()
    assert plain[0] == [0.5, 0.25, 0.125]
