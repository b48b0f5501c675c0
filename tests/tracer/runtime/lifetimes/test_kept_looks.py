"""Looks for kept tensors: when they are made, and that they leave the program as it is."""

from __future__ import annotations

import gc
import time
import weakref
from collections import deque
from collections.abc import Iterator
from threading import Thread
from time import perf_counter_ns
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from stepscope.tracer.runtime.lifetimes import kept_tensors, live_tensors
from stepscope.tracer.runtime.lifetimes.holders import overlapped
from stepscope.tracer.runtime.lifetimes.kept_tensors import LOOKS, KeptTensorsWatch
from tests.tracer.runtime.lifetimes.kept_watches import SIZE, STEPS, Sink, watched

kept: Any = None


@pytest.fixture(autouse=True)
def free(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Looks and searches may take as long as they need: the heap of a test process is large."""
    global kept
    monkeypatch.setattr(kept_tensors, "MOST_SHARE", 1e9)
    monkeypatch.setattr(kept_tensors, "SECONDS", 60)
    kept = None
    yield
    kept = None


@pytest.fixture
def no_collections() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.slow
def test_no_frame_is_kept_alive(no_collections: None) -> None:
    global kept
    kept = deque[Tensor]()
    container = weakref.ref(kept)
    watch, losses = KeptTensorsWatch(sink := Sink()), []

    def step(number: int) -> None:
        loss = torch.rand(4)
        losses.append(weakref.ref(loss))
        watch.at_step(number)
        kept.append(torch.rand(SIZE))

    for number in range(STEPS):
        step(number)
    assert sink.written
    assert [one() for one in losses] == [None] * STEPS
    kept = None
    assert container() is None


@pytest.mark.slow
def test_the_program_collects_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "collect", lambda *_: pytest.fail("a collection runs finalizers of the program"))
    losses: list[Tensor] = []
    assert watched(lambda n: losses.append(torch.rand(SIZE)))


def test_other_threads_know_of_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    known: list[bool] = []

    def look(*_: object) -> dict[Any, Any]:
        thread = Thread(target=lambda: known.append(overlapped(perf_counter_ns())))
        thread.start()
        thread.join()
        return {}

    monkeypatch.setattr(kept_tensors, "live_tensors", look)
    watch = KeptTensorsWatch(Sink())
    for number in range(STEPS):
        watch.at_step(number)
    assert known == [True] * 3


def test_a_search_that_took_long_delays_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(*_: object) -> dict[Any, Any]:
        time.sleep(0.3)
        return {}

    def no_look(*_: object) -> dict[Any, Any]:
        raise AssertionError("a look")

    monkeypatch.setattr(KeptTensorsWatch, "_holders", search)
    watch = KeptTensorsWatch(sink := Sink())
    for number in range(STEPS):
        watch.at_step(number)
    monkeypatch.setattr(kept_tensors, "MOST_SHARE", 0.1)
    monkeypatch.setattr(kept_tensors, "live_tensors", no_look)
    watch.at_step(100)
    assert not sink.failures


@pytest.mark.slow
def test_looks_that_would_cost_too_much_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    global kept
    kept, looks = list[Tensor](), []
    look = live_tensors.live_tensors

    def noted(*arguments: Any) -> Any:
        looks.append(number)
        return look(*arguments)

    monkeypatch.setattr(kept_tensors, "live_tensors", noted)
    watch = KeptTensorsWatch(sink := Sink())
    for number in range(60):
        monkeypatch.setattr(kept_tensors, "MOST_SHARE", 1e9 if number >= 20 and not 25 < number < 35 else 0)
        watch.at_step(number)
        kept += [torch.rand(SIZE)]
    assert looks == [24, 36, 42]
    assert [record.step for record in sink.written] == [[24, 36, 42]]


@pytest.mark.filterwarnings("ignore")
def test_nested_tensors_and_those_without_memory() -> None:
    mine = [torch.nested.nested_tensor([torch.rand(3), torch.rand(5)]), torch.rand(SIZE, device="meta")]
    mine += [torch.rand(SIZE).to_sparse(), torch.rand(SIZE)]
    found = [one for group in live_tensors.live_tensors().values() for one in group]
    assert [any(one is other for other in found) for one in mine] == [False, False, False, True]


@pytest.mark.slow
def test_modes_of_the_program_see_nothing() -> None:
    class Functions(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(function)
            return function(*args, **(kwargs or {}))

    class Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(operator)
            return operator(*args, **(kwargs or {}))

    global kept
    seen, kept, sink = list[Any](), list[Tensor](), Sink()
    watch = KeptTensorsWatch(sink)
    for number in range(STEPS):
        with Functions(), Operators():  # type: ignore[no-untyped-call]
            watch.at_step(number)
        kept += [torch.rand(SIZE)]
    assert sink.written
    assert seen == []


def test_a_failure_ends_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def fail(*_: object) -> None:
        looks.append(1)
        raise RuntimeError("no look")

    monkeypatch.setattr(kept_tensors, "live_tensors", fail)
    sink = Sink()
    watch = KeptTensorsWatch(sink)
    for number in (*range(400), *range(400)):
        watch.at_step(number)
    assert sink.failures == ["kept tensors: no look"]
    assert len(looks) == 1


def looked_at(monkeypatch: pytest.MonkeyPatch, steps: list[int], sink: Sink | None = None) -> list[int]:
    """Return the steps in which tensors were counted."""
    found: list[int] = []
    sink, step = sink or Sink(), 0

    def look(*_: object) -> dict[Any, Any]:
        found.append(step)
        return {}

    monkeypatch.setattr(kept_tensors, "live_tensors", look)
    watch = KeptTensorsWatch(sink)
    for step in steps:
        watch.at_step(step)
    return found


def test_the_steps_of_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looked_at(monkeypatch, [*range(4000)]) == [step for series in LOOKS for step in series]


def test_steps_that_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls before the first step of an optimizer seemed to be steps."""
    assert looked_at(monkeypatch, [*range(13), *range(1, 20)]) == [6, 12, 6, 12, 18]


def test_looks_that_would_take_too_long_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_tensors, "MOST_SHARE", 0.0)
    assert looked_at(monkeypatch, [*range(4000)]) == []


def looks_of(steps: int, monkeypatch: pytest.MonkeyPatch, grows_until: int = 1 << 30) -> list[list[int]]:
    """Return the looks of a recording that ends after some steps, and after 12 steps may not take any time more."""
    global kept
    kept = []
    watch = KeptTensorsWatch(sink := Sink())
    for number in range(steps):
        if number == 13:
            monkeypatch.setattr(kept_tensors, "MOST_SHARE", 0.0)
        watch.at_step(number)
        if number < grows_until:
            kept.append(torch.rand(SIZE))
    watch.at_end(steps - 1)
    return [one.step for one in sink.written if tuple(one.sizes) == SIZE]


@pytest.mark.slow
def test_the_last_look_of_a_series_in_which_tensors_grew(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looks_of(STEPS, monkeypatch) == [[6, 12, 18]]


@pytest.mark.slow
def test_a_recording_that_ends_before_the_last_look(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looks_of(16, monkeypatch) == [[6, 12, 15]]


@pytest.mark.slow
def test_a_recording_that_ends_just_after_the_last_look_but_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looks_of(14, monkeypatch) == []


def test_what_does_not_grow_any_more_when_a_recording_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looks_of(16, monkeypatch, grows_until=12) == []


def test_no_look_while_nothing_is_recorded_or_a_graph_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Sink()
    sink.is_on = False
    assert looked_at(monkeypatch, [*range(400)], sink) == []
    sink = Sink()
    sink.cuda_graphs.is_capturing = lambda: True
    assert looked_at(monkeypatch, [*range(400)], sink) == []
    sink = Sink()
    sink.lifetimes.every = 16
    assert looked_at(monkeypatch, [*range(400)], sink) == []
    sink = Sink()
    sink.lifetimes = None
    assert looked_at(monkeypatch, [*range(400)], sink) == []


def test_all_plain_tensors_are_found() -> None:
    mine = [torch.rand(SIZE), nn.Parameter(torch.rand(SIZE)), torch.rand(SIZE, device="meta")]
    plain = [one for one in gc.get_objects() if type(one) in (Tensor, nn.Parameter) and one.layout is torch.strided]
    storages = {id(one.untyped_storage()) for one in plain if not one.is_meta and one.untyped_storage().nbytes()}
    found = [one for group in live_tensors.live_tensors().values() for one in group]
    assert {id(one.untyped_storage()) for one in found} == storages
    assert id(mine[0].untyped_storage()) in storages
