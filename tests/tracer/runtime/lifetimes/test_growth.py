"""What steps leave behind: growth is told, and a healthy program leaves nothing."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import stepscope
from stepscope.tracer.runtime.lifetimes import growth, kept_tensors
from stepscope.tracer.runtime.lifetimes.holders import find_holders
from stepscope.tracer.runtime.lifetimes.kept_tensors import LOOKS
from stepscope.tracer.schema.memory import Growth, Lifetimes
from tests.tracer.logs import read

pytestmark = pytest.mark.filterwarnings("ignore")  # torch/utils/mkldnn.py uses a deprecated function

kept: list[Any] = []
PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Searches have time for the many objects of a process that runs tests, on a machine with other work."""
    monkeypatch.setattr(find_holders, "__defaults__", (PATIENCE_S,))
    torch._dynamo.reset()
    yield
    kept.clear()


def record(tmp_path: Path, step: Callable[[int], object], steps: int = 6) -> Growth:
    with stepscope.trace(tmp_path) as recorder:
        for number in range(steps):
            step(number)
            stepscope.step()
    path = recorder.path
    assert path is not None
    records = read(path)
    assert records[Lifetimes.KIND]
    (growth,) = records[Growth.KIND]
    return Growth(**growth)


def wave(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() @ x).relu()


def test_a_list_that_keeps_every_result(tmp_path: Path) -> None:
    compiled, x = torch.compile(wave), torch.ones(16, 16)
    growth = record(tmp_path, lambda n: kept.append(compiled(x)))
    assert len(growth.call) == 5  # all but the last step's
    assert growth.freed_by_collection == [False] * 5
    assert growth.holders[:3] == [[]] * 3
    for words in growth.holders[3:]:
        assert f"list of 6 in kept of {__name__}" in words


def test_what_a_function_holds_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_tensors, "MOST_SHARE", 1e9)
    monkeypatch.setattr(growth, "SECONDS_OF_STEP", PATIENCE_S)
    compiled, x = torch.compile(wave), torch.ones(256, 256)

    def train() -> None:
        results: list[torch.Tensor] = []
        for _ in range(LOOKS[0][-1] + 2):
            results.append(compiled(x)[:1])
            stepscope.step()

    with stepscope.trace(tmp_path) as recorder:
        train()
    assert recorder.path is not None
    first, last = read(recorder.path)[Growth.KIND]
    assert (first["at_step"], last["at_step"], last["call"]) == (LOOKS[0][-1], None, [])
    assert first["freed_by_collection"] == [None, None]
    assert first["tensor_bytes"] == [1024, 1024]
    for words in first["holders"]:
        assert any(
            f" in local variable results of {train.__qualname__.rpartition('.')[2]}() at " in one for one in words
        )


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "tensor_bytes"), [(1, 64), (16, 1024)])
def test_a_list_that_keeps_views(tmp_path: Path, rows: int, tensor_bytes: int) -> None:
    compiled, x = torch.compile(wave), torch.ones(16, 16)
    growth = record(tmp_path, lambda n: kept.append(compiled(x)[:rows]))
    assert growth.tensor_bytes[-2:] == [tensor_bytes] * 2
    assert set(growth.tensor_bytes[:-2]) == {None}


@pytest.mark.slow
def test_views_that_cover_the_storage_together(tmp_path: Path) -> None:
    compiled, x = torch.compile(wave), torch.ones(16, 16)
    growth = record(tmp_path, lambda n: kept.append(compiled(x).chunk(4, 1)))
    assert growth.tensor_bytes[-2:] == [1024] * 2


@pytest.mark.slow
def test_sizes_that_change_from_step_to_step(tmp_path: Path) -> None:
    compiled = torch.compile(lambda x: x.sin() + 1, dynamic=True)
    growth = record(tmp_path, lambda n: kept.append(compiled(torch.ones(16 + n))))
    assert len(growth.call) == 5


def keeping(x: torch.Tensor) -> torch.Tensor:
    h = x.sin()
    kept.append(h)
    return h.sum()


@pytest.mark.slow
def test_a_frame_that_is_compiled_anew_because_of_the_list_it_grows(tmp_path: Path) -> None:
    compiled, x = torch.compile(keeping), torch.ones(16, 16)
    growth = record(tmp_path, lambda n: compiled(x))
    assert len(growth.call) == 5
    assert f"list of 6 in kept of {__name__}" in growth.holders[-1]


@pytest.mark.slow
def test_cycles_that_only_a_collection_frees(tmp_path: Path) -> None:
    compiled, x = torch.compile(wave), torch.ones(16, 16)

    def step(number: int) -> None:
        cycle: dict[str, Any] = {"result": compiled(x)}
        cycle["self"] = cycle

    gc.collect()
    gc.disable()
    try:
        growth = record(tmp_path, step)
    finally:
        gc.enable()
    assert growth.freed_by_collection == [True] * 5


def test_frozen_objects_are_not_collected(tmp_path: Path) -> None:
    compiled, x = torch.compile(wave), torch.ones(16, 16)
    gc.freeze()
    try:
        growth = record(tmp_path, lambda n: kept.append(compiled(x)))
    finally:
        gc.unfreeze()
    assert growth.freed_by_collection == [None] * 5


def test_training_leaves_nothing(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
    compiled, optimizer = torch.compile(model), torch.optim.AdamW(model.parameters())
    update = torch.compile(optimizer.step)
    state: dict[str, Any] = {}

    def step(number: int) -> None:
        optimizer.zero_grad(set_to_none=number % 2 == 0)
        state["loss"] = compiled(torch.ones(4, 8)).square().mean()
        state["loss"].backward()
        update()

    assert record(tmp_path, step).call == []


@pytest.mark.slow
def test_a_cache_that_is_written_in_place_and_one_that_is_replaced_leave_nothing(tmp_path: Path) -> None:
    cache = torch.zeros(8, 16)
    state = {"grown": torch.zeros(1, 16)}

    def decode(cache: torch.Tensor, grown: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        cache.index_copy_(0, at, grown[-1:] + 1)
        return torch.cat([grown, cache[:1]])

    compiled = torch.compile(decode, dynamic=True)

    def step(number: int) -> None:
        state["grown"] = compiled(cache, state["grown"], torch.tensor([number]))

    assert record(tmp_path, step).call == []


def test_what_the_first_steps_have_made_for_good_is_no_growth(tmp_path: Path) -> None:
    compiled, x = torch.compile(wave), torch.ones(16, 16)
    growth = record(tmp_path, lambda n: kept.append(compiled(x)) if n < 2 else compiled(x))
    assert growth.call == []
