"""Waits for batches of a DataLoader, as the hook of the recorder sees them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from stepscope.tracer.inductor.data_waits import DataWaits
from stepscope.tracer.schema.repeats import RepeatedBatch
from stepscope.tracer.schema.steps import DataWait

BAR = "def bar(loader):\n    for batch in loader:\n        yield batch\n"


class Slow(Dataset[torch.Tensor]):
    """A dataset of four samples, the third of which may be missing."""

    def __init__(self, is_whole: bool) -> None:
        self._is_whole = is_whole

    def __len__(self) -> int:
        return 4

    def __getitem__(self, number: int) -> torch.Tensor:
        time.sleep(0.002)
        if number == 2 and not self._is_whole:
            raise KeyError("no such sample")
        return torch.ones(2)


class Sink:
    def __init__(self) -> None:
        self.found: list[DataWait] = []

    def write(self, record: DataWait | RepeatedBatch) -> None:
        assert isinstance(record, DataWait)
        self.found.append(record)

    def failed(self, where: str, error: BaseException) -> None:
        raise AssertionError(where) from error


@pytest.fixture
def waits() -> Iterator[list[DataWait]]:
    sink = Sink()
    hook = DataWaits(sink)
    before = _BaseDataLoaderIter.__next__
    hook.attach()
    hook.attach()
    yield sink.found
    hook.detach()
    assert _BaseDataLoaderIter.__next__ is before


def test_a_wait_is_at_the_line_of_the_program_behind_a_progress_bar(waits: list[DataWait]) -> None:
    scope: dict[str, Any] = {}
    exec(compile(BAR, "/env/lib/python3.11/site-packages/tqdm/std.py", "exec"), scope)
    bar: Any = scope["bar"]
    batches: Iterable[torch.Tensor] = bar(DataLoader(Slow(True)))
    count = sum(1 for _ in batches)  # the line that waits
    with open(__file__) as file:
        line = next(n for n, text in enumerate(file, 1) if text.endswith("# the line that waits\n"))
    assert count == 4
    assert {(wait.file, wait.line, wait.workers) for wait in waits} == {(__file__, line, 0)}
    assert all(wait.duration_ns >= 2_000_000 for wait in waits[:4])


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_that_are_started_again(waits: list[DataWait], persistent: bool) -> None:
    loader = DataLoader(Slow(True), num_workers=1, persistent_workers=persistent)
    for _ in range(3):
        assert len(list(loader)) == 4
    begun = [wait.begins for wait in waits if wait.begins]
    assert begun == ([] if persistent else ["workers", "batch"] * 2)
    assert {wait.workers for wait in waits} == {1}


def test_a_first_loop_that_began_before_the_recording_counts() -> None:
    sink, loader = Sink(), DataLoader(Slow(True), num_workers=1)
    hook, first = DataWaits(sink), iter(loader)
    hook.attach()
    list(first)
    list(loader)
    hook.detach()
    assert [wait.begins for wait in sink.found if wait.begins] == ["workers", "batch"]


def test_workers_of_another_loader_are_not_started_again(waits: list[DataWait]) -> None:
    for _ in range(3):
        assert len(list(DataLoader(Slow(True), num_workers=1))) == 4
    assert [wait.begins for wait in waits if wait.begins] == []


def test_an_error_of_the_dataset_is_the_programs_own(waits: list[DataWait]) -> None:
    with pytest.raises(KeyError, match="no such sample"):
        list(DataLoader(Slow(False)))
    assert len(waits) == 3


@pytest.mark.usefixtures("waits")
def test_dynamo_breaks_at_a_loader_as_without_the_hook() -> None:
    from torch._dynamo.utils import counters

    @torch.compile(backend="eager")
    def first(batches: Iterator[torch.Tensor]) -> torch.Tensor:
        return next(batches) * 2

    torch._dynamo.reset()
    counters.clear()
    numbers: Any = torch.arange(4.0)
    assert first(iter(DataLoader(numbers, batch_size=2))).tolist() == [0.0, 2.0]
    (why,) = counters["graph_break"]
    assert "_BaseDataLoaderIter.__next__" in why
