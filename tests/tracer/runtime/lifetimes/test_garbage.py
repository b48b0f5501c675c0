"""Garbage collections are noted if storages died in them, and only while a recording follows storages."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

import pytest

from stepscope.tracer.runtime.lifetimes.garbage import GarbageCollections


@pytest.fixture
def collections() -> Iterator[GarbageCollections]:
    noted = GarbageCollections(time.perf_counter_ns)
    noted.attach()
    try:
        yield noted
    finally:
        noted.detach()


def make_cycle() -> None:
    cycle: list[object] = []
    cycle.append(cycle)


@pytest.mark.slow
def test_a_collection_is_recorded_only_with_the_deaths_in_it(collections: GarbageCollections) -> None:
    make_cycle()
    gc.collect()
    before = time.perf_counter_ns()
    collections_without_deaths = collections.record([before], list, 1)
    assert collections_without_deaths is None
    dead: list[int] = []

    class Dying(list[object]):
        def __del__(self) -> None:
            dead.append(time.perf_counter_ns())

    cycle = Dying()
    cycle.append(cycle)
    del cycle
    assert not dead
    gc.collect()
    found = collections.record(dead, list, 1)
    assert found is not None
    assert (found.generation, found.holders) == ([2], [])
    assert found.start_ns[0] <= dead[0] <= found.end_ns[0]
    assert collections.record(dead, list, 1) is None


def test_nothing_stays_behind_in_the_program(collections: GarbageCollections) -> None:
    callbacks = len(gc.callbacks)
    collections.attach()
    assert len(gc.callbacks) == callbacks
    collections.detach()
    assert len(gc.callbacks) == callbacks - 1
