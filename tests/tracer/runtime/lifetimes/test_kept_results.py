"""Results of several calls that are one piece of memory are found, and results with memory of their own are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import stepscope
from stepscope.tracer.runtime.lifetimes import kept_results
from stepscope.tracer.schema.memory import KeptResults
from tests.tracer.logs import read

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

CALLS = 10
ENOUGH = kept_results.LOOKS[0] + kept_results.LEAST_KEPT
"""The call at which there are enough more references."""


class Ring:
    """What a compiled function writes."""

    def __init__(self) -> None:
        self.whole, self.rows = torch.zeros(4), torch.zeros(CALLS, 4)

    def write(self, x: Tensor) -> Tensor:
        self.whole.copy_(x * 2)
        return self.whole

    def view(self, x: Tensor) -> Tensor:
        return self.write(x)[1:3]

    def fill(self, x: Tensor, row: Tensor) -> None:
        self.rows.index_copy_(0, row, x[None])


kept: Any = None


def recorded(tmp_path: Path, keep: Callable[[int], object]) -> list[dict[str, Any]]:
    torch._dynamo.reset()
    with stepscope.trace(tmp_path) as recorder, torch.no_grad():
        for number in range(CALLS):
            keep(number)
    assert recorder.path is not None
    return read(recorder.path).get(KeptResults.KIND, [])


@pytest.mark.parametrize("method", ["write", "view"])
def test_a_list_of_results_that_are_one_buffer(tmp_path: Path, method: str) -> None:
    global kept
    write: Callable[[Tensor], Tensor] = torch.compile(getattr(Ring(), method))
    kept = []
    (found,) = recorded(tmp_path, lambda n: kept.append(write(torch.full((4,), float(n)))))
    assert found["kept"] == ENOUGH - 1
    assert found["holder"] == f"list of {found['kept']} in kept of {__name__}"


def test_what_a_few_of_many_calls_leave(tmp_path: Path) -> None:
    write, few = torch.compile(Ring().write), []

    def keep(n: int) -> None:
        for _ in range(10):
            result = write(torch.full((4,), float(n)))
        few.append(result)

    (found,) = recorded(tmp_path, keep)
    assert found["kept"] == (kept_results.LOOKS[2] - 1) // 10


@pytest.mark.parametrize("length", [6, 10])
def test_a_list_that_each_rollout_starts_again(tmp_path: Path, length: int) -> None:
    write, rollout = torch.compile(Ring().write), list[Tensor]()

    def keep(n: int) -> None:
        state = torch.zeros(4)
        rollout.clear()
        for _ in range(length):
            result = write(torch.full((4,), float(n)))
            rollout.append(state)
            state = result

    (found,) = recorded(tmp_path, keep)
    assert found["kept"] == kept_results.LEAST_KEPT


def test_an_input_that_others_refer_to_is_not_looked_for_at_each_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches, held = list[int](), list[tuple[Tensor]]()
    monkeypatch.setattr(kept_results._Search, "_add_views", lambda _: searches.append(1))
    write = torch.compile(Ring().write)

    def keep(n: int) -> None:
        for _ in range(10):
            result = write(torch.full((4,), float(n)))
            held.extend((result,) for _ in range(5))

    assert recorded(tmp_path, keep) == []
    assert len(searches) == kept_results.MOST_SEARCHES


def test_a_dict_in_an_attribute(tmp_path: Path) -> None:
    class Log:
        results: dict[int, Tensor]

    log, write = Log(), torch.compile(Ring().write)
    log.results = {}
    (found,) = recorded(tmp_path, lambda n: log.results.update({n: write(torch.full((4,), float(n)))}))
    assert found["holder"] == "dict of 5 in attribute results of test_a_dict_in_an_attribute.<locals>.Log"


def test_copies_windows_and_views_of_other_rows_are_healthy(tmp_path: Path) -> None:
    ring, own, last, rows = Ring(), list[Tensor](), list[Tensor](), list[Tensor]()
    write, fill = torch.compile(ring.write), torch.compile(ring.fill)

    def keep(n: int) -> None:
        result = write(torch.full((4,), float(n)))
        own.append(result.clone())
        last[:] = [*last[-2:], result]
        fill(torch.full((4,), float(n)), torch.tensor([n]))
        rows.append(ring.rows[n])

    assert recorded(tmp_path, keep) == []


def test_the_same_row_again_and_again(tmp_path: Path) -> None:
    ring, rows = Ring(), list[Tensor]()
    fill = torch.compile(ring.fill)

    def keep(n: int) -> None:
        fill(torch.full((4,), float(n)), torch.tensor([1]))
        rows.append(ring.rows[1])

    (found,) = recorded(tmp_path, keep)
    assert found["kept"] == ENOUGH - 1


def test_state_dicts_of_several_steps(tmp_path: Path) -> None:
    norm, states = torch.nn.BatchNorm1d(4), []
    train = torch.compile(norm)

    def keep(n: int) -> None:
        train(torch.rand(4, 4) + n)
        states.append(norm.state_dict())

    found = recorded(tmp_path, keep)
    assert {(one["kept"], one["holder"]) for one in found} == {(ENOUGH - 1, None)}
    assert len(found) == len(list(norm.buffers()))


def test_a_buffer_that_a_graph_only_reads_may_be_kept(tmp_path: Path) -> None:
    buffer, many = torch.ones(4), []

    @torch.compile
    def read_only(x: Tensor) -> Tensor:
        return x + buffer

    def keep(n: int) -> None:
        read_only(torch.full((4,), float(n)))
        many.append(buffer)

    assert recorded(tmp_path, keep) == []


def test_a_search_that_fails_does_not_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no search")

    monkeypatch.setattr(kept_results, "_places", fail)
    many: list[Tensor] = []
    write = torch.compile(Ring().write)
    assert recorded(tmp_path, lambda n: many.append(write(torch.full((4,), float(n))))) == []
    assert len(many) == CALLS
