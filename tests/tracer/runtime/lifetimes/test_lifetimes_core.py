"""The compiled form of what follows storages, beside the Python one: the same events for the same calls."""

from __future__ import annotations

import gc
import random
import threading
import weakref
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest
import torch

from stepscope.tracer.runtime.calls import GraphCall
from stepscope.tracer.runtime.lifetimes import trackers as lifetimes_core
from stepscope.tracer.runtime.lifetimes.tracker import Tracker, close
from stepscope.tracer.runtime.lifetimes.trackers import CompiledTracker
from stepscope.tracer.wrapper.parsed import PointStorages

PLACES = (
    PointStorages("allocated", ("buf0", "buf1"), ("cpu", "cpu")),
    PointStorages("input", ("a", "b", "c", "d")),
    PointStorages("returned", ("buf2",), site=0),
)
ALLOCATED, INPUT, RETURNED = range(3)


class Hooks:
    """Of one graph: what a compiled observer tells."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.asked: list[Any] = []
        self.tracker: Tracker | None = None

    def lost(self, call: GraphCall, error: BaseException) -> None:
        self.errors.append(error)
        close(call)
        call.life = None

    def ask_allocator(self, call: GraphCall, device: str | None) -> None:
        self.asked.append(device)

    def see_storages(self, call: GraphCall, place: int, values: Sequence[Any]) -> None:
        assert self.tracker is not None
        self.tracker.see(call, place, PLACES[place], values)


class Side:
    """A tracker with the calls that run under it."""

    def __init__(self, is_compiled: bool) -> None:
        self.hooks, self.stack, self.moments = Hooks(), [], count()  # type: ignore[var-annotated]
        running: Callable[[], GraphCall | None] = lambda: self.stack[-1] if self.stack else None  # noqa: E731
        clock = lambda: next(self.moments)  # noqa: E731
        self.tracker = (
            CompiledTracker(lifetimes_core.load(), running, clock) if is_compiled else Tracker(running, clock)
        )
        self.hooks.tracker = self.tracker
        self.see = self.tracker.observer(self.hooks, PLACES)
        self.numbers = count()
        self.seen: list[Any] = []

    def begin(self, step: int) -> GraphCall:
        parent = self.stack[-1] if self.stack else None
        call = GraphCall(0, 0, None, parent)
        call.number, call.step = next(self.numbers), step
        call.life = self.tracker.life(call, ("frame", 0))
        if parent is not None:
            parent.life.child = call.life
        self.stack.append(call)
        return call

    def end(self, call: GraphCall) -> None:
        self.stack.remove(call)
        assert call.life is not None
        self.seen.append((call.number, list(call.life.events)))
        close(call)

    def outside(self) -> list[tuple[int, int, int]]:
        batch = self.tracker.batch([])
        return [] if batch is None else list(zip(batch.dead_call, batch.dead_index, batch.dead_ns, strict=True))


def random_program(side: Side, seed: int) -> None:
    """Calls, some within others, that allocate, return, keep, share and drop tensors; the same for the same seed."""
    chance = random.Random(seed)
    kept: list[torch.Tensor] = [torch.ones(4), torch.ones(2, 2).t()]
    for step in range(6):
        calls = [side.begin(step)]
        for _ in range(12):
            call = calls[-1]
            call.rows += [0, 1, 2] if chance.random() < 0.5 else []
            match chance.randrange(7):
                case 0 | 1:
                    pair = (torch.empty(chance.randrange(5)), torch.empty(3))
                    side.see(call, ALLOCATED, pair)
                    kept += pair
                case 2:
                    values = (chance.choice(kept), chance.choice(kept).detach(), 3, None)
                    side.see(call, INPUT, values)
                case 3:
                    one = torch.empty(6)
                    side.see(call, RETURNED, ((one, [one[1:], torch.empty(0)], None, 2.5, chance.choice(kept)),))
                    kept.append(one)
                case 4 | 5:
                    del kept[chance.randrange(1, len(kept))]
                    if not kept[1:]:
                        kept.append(torch.ones(1))
                case _ if len(calls) < 3:
                    calls.append(side.begin(step))
            one = pair = values = None  # type: ignore[assignment]
        while calls:
            side.end(calls.pop())
        kept = kept[:20]


@pytest.mark.parametrize("seed", range(40))
def test_the_same_events(seed: int) -> None:
    compiled, python = Side(True), Side(False)
    for side in (compiled, python):
        random_program(side, seed)
    assert compiled.seen == python.seen
    assert any(events for _, events in python.seen)
    assert compiled.outside() == python.outside()
    assert not compiled.hooks.errors
    assert not python.hooks.errors


def test_storages_that_are_alive() -> None:
    side = Side(True)
    call = side.begin(0)
    kept, given = torch.empty(4), torch.empty(2)
    side.see(call, ALLOCATED, (kept, torch.empty(1)))
    side.see(call, INPUT, (given,))
    alive = {one.index: one for one in side.tracker.storages()}
    assert sorted(alive) == [0, 2]
    assert [alive[0].is_given, alive[2].is_given] == [False, True]
    assert alive[0].owner is call.life
    storage = alive[0].reference()
    assert storage is not None
    assert storage.data_ptr() == kept.data_ptr()


def test_calls_that_ran_alike_have_equal_keys() -> None:
    side = Side(True)
    keys = []
    for size in (4, 4, 8):
        call = side.begin(0)
        side.see(call, ALLOCATED, (torch.empty(size),))
        assert call.life is not None
        keys.append(call.life.key())
        side.end(call)
    assert keys[0] == keys[1] != keys[2]


def test_what_cannot_be_looked_at_is_told_and_not_raised() -> None:
    class Broken:
        def untyped_storage(self) -> None:
            raise ValueError("no")

    side = Side(True)
    call = side.begin(0)
    side.see(call, INPUT, (Broken(),))
    assert [str(error) for error in side.hooks.errors] == ["no"]
    side.see(call, INPUT, (torch.ones(1),))  # is not followed any more
    assert len(side.hooks.errors) == 1


@pytest.mark.parametrize("arguments", [(), (1, 2, 3), ("call", 0, ())])
def test_wrong_arguments_are_an_error(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        Side(True).see(*arguments)


def test_interrupts_are_the_program_s() -> None:
    class Interrupted:
        def untyped_storage(self) -> None:
            raise KeyboardInterrupt

    side = Side(True)
    with pytest.raises(KeyboardInterrupt):
        side.see(side.begin(0), INPUT, (Interrupted(),))


def test_the_allocator_is_asked_where_a_call_says_so() -> None:
    side = Side(True)
    call = side.begin(0)
    assert call.life is not None
    call.life.asks_allocator, call.life.device = True, "cuda:1"
    side.see(call, ALLOCATED, (torch.empty(1),))
    assert side.hooks.asked == ["cuda:1"]


def test_nothing_is_kept_alive() -> None:
    side = Side(True)
    call = side.begin(0)
    tensor = torch.empty(4)
    side.see(call, ALLOCATED, (tensor,))
    side.end(call)
    tracker, hooks = weakref.ref(side.tracker), weakref.ref(side.hooks)
    del side, call
    gc.collect()
    assert tracker() is None
    assert hooks() is None
    del tensor  # nobody is told


def test_deaths_on_other_threads_during_calls() -> None:
    side = Side(True)
    call = side.begin(0)
    pending = [torch.empty(16) for _ in range(2000)]
    side.see(call, INPUT, tuple(pending))
    thread = threading.Thread(target=pending.clear)
    thread.start()
    for _ in range(200):
        side.see(call, ALLOCATED, (torch.empty(1),))
    thread.join()
    assert call.life is not None
    assert sum(event[0] < 0 for event in call.life.events) == 2200
