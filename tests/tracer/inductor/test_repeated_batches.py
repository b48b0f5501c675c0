"""Loaders of which each step takes the first batch, and those of programs that see all batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from stepscope.tracer.inductor.data_waits import DataWaits
from stepscope.tracer.inductor.repeated_batches import LEAST, BatchesWatch
from stepscope.tracer.schema.repeats import RepeatedBatch
from stepscope.tracer.schema.steps import DataWait

NUMBERS: Any = torch.arange(10.0)


class Training:
    """An optimizer whose steps and batches are watched; also the sink of the records."""

    def __init__(self) -> None:
        self.told: list[RepeatedBatch] = []
        self.failures: list[str] = []
        self.optimizer = an_optimizer()

    def write(self, record: DataWait | RepeatedBatch) -> None:
        self.told += [record] if isinstance(record, RepeatedBatch) else []

    def failed(self, where: str, error: BaseException) -> None:
        self.failures.append(f"{where}: {error}")

    def run(self, before: Callable[[int], object], steps: int = 2 * LEAST) -> list[RepeatedBatch]:
        for step in range(steps):
            before(step)
            self.optimizer.step()
        assert not self.failures
        return self.told


def an_optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(2))])


@pytest.fixture
def training() -> Iterator[Training]:
    one = Training()
    hook = DataWaits(one)
    hook.attach()
    yield one
    hook.detach()


def first_of(loader: DataLoader[Any]) -> Callable[[int], object]:
    return lambda _: next(iter(loader))


@pytest.mark.parametrize("settings", [{}, {"sampler": SequentialSampler(NUMBERS)}, {"drop_last": True}])
def test_the_first_batch_in_each_step(training: Training, settings: dict[str, Any]) -> None:
    (told,) = training.run(first_of(DataLoader(NUMBERS, 4, **settings)))
    assert (told.batch_size, told.batches, told.samples) == (4, 2 if settings.get("drop_last") else 3, 10)
    assert (told.steps, told.file, told.line) == (LEAST, __file__, first_of.__code__.co_firstlineno + 1)


@pytest.mark.slow
@pytest.mark.parametrize("persistent", [False, True])
def test_workers(training: Training, persistent: bool) -> None:
    loader = DataLoader(NUMBERS, 4, num_workers=1, persistent_workers=persistent)
    assert len(training.run(first_of(loader), LEAST)) == 1


def test_a_loop_that_ends_after_a_batch(training: Training) -> None:
    loader: DataLoader[Any] = DataLoader(NUMBERS, 4)
    for _ in range(LEAST):
        for _ in loader:
            training.optimizer.step()
            break
    assert len(training.told) == 1


def test_several_micro_batches(training: Training) -> None:
    loader: DataLoader[Any] = DataLoader(NUMBERS, 4)
    assert len(training.run(lambda _: [next(iter(loader)) for _ in range(3)])) == 1


def test_two_optimizers(training: Training) -> None:
    loader, other = DataLoader(NUMBERS, 4), an_optimizer()
    assert len(training.run(lambda step: (first_of(loader)(step), other.step()))) == 1


def test_samples_that_are_no_batches(training: Training) -> None:
    (told,) = training.run(first_of(DataLoader(NUMBERS, None)))
    assert (told.batch_size, told.batches) == (None, 10)


class Own(BatchSampler):
    """May shuffle."""


class Numbers(torch.utils.data.IterableDataset[Any]):
    """Goes on where it ended."""

    def __iter__(self) -> Iterator[Any]:
        return iter(torch.rand(10))


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(NUMBERS, 4, shuffle=True),
        DataLoader(NUMBERS, 10),
        DataLoader(NUMBERS, batch_sampler=Own(SequentialSampler(NUMBERS), 4, False)),
        DataLoader(Numbers(), 4),
    ],
)
def test_loaders_with_other_batches_or_none(training: Training, loader: DataLoader[Any]) -> None:
    assert training.run(first_of(loader)) == []


def test_epochs(training: Training) -> None:
    loader: DataLoader[Any] = DataLoader(NUMBERS, 4)
    for _ in range(LEAST):
        for _ in loader:
            training.optimizer.step()
    assert training.told == []


def test_a_step_for_each_epoch(training: Training) -> None:
    loader: DataLoader[Any] = DataLoader(NUMBERS, 4)
    assert training.run(lambda _: list(loader)) == []


def test_an_iterator_that_goes_on(training: Training) -> None:
    batches = iter(DataLoader(NUMBERS, 1))
    assert training.run(lambda _: next(batches), 10) == []


def test_an_iterator_that_is_made_anew_at_the_end(training: Training) -> None:
    """In each step it gives its last batches, and the next one its first batch."""
    loader: DataLoader[Any] = DataLoader(NUMBERS, 4)
    batches = [iter(loader)]
    next(batches[0])

    def rest_and_first(_: int) -> None:
        for _ in batches[0]:
            pass
        batches[0] = iter(loader)
        next(batches[0])

    assert training.run(rest_and_first) == []


def test_the_first_batch_at_two_lines(training: Training) -> None:
    loader: DataLoader[Any] = DataLoader(NUMBERS, 4)

    def alternating(step: int) -> None:
        if step % 2:
            next(iter(loader))
        else:
            next(iter(loader))

    assert training.run(alternating) == []


def test_an_evaluation(training: Training) -> None:
    with torch.no_grad():
        assert training.run(first_of(DataLoader(NUMBERS, 4))) == []


def test_few_steps_and_a_new_loader_for_each_step(training: Training) -> None:
    assert training.run(first_of(DataLoader(NUMBERS, 4)), LEAST - 1) == []
    assert training.run(lambda _: next(iter(DataLoader(NUMBERS, 4)))) == []


def test_nothing_is_watched_after_the_recording() -> None:
    one = Training()
    hook = DataWaits(one)
    hook.attach()
    loader: DataLoader[Any] = DataLoader(NUMBERS, 4)
    one.run(first_of(loader), LEAST - 1)
    hook.detach()
    assert one.run(first_of(loader)) == []


def test_a_failure_is_told_once(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchesWatch, "_look", lambda *_: 1 / 0)
    with pytest.raises(AssertionError):
        training.run(first_of(DataLoader(NUMBERS, 4)))
    assert training.failures == ["batches that each step takes: division by zero"]
