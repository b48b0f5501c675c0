"""The compiled statements before and after a launch."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

from stepscope.tracer.runtime import compiled, ticks
from stepscope.tracer.runtime.ticks import tick_type


def made(cells: int) -> tuple[Any, memoryview]:
    make = tick_type()
    assert make is not None
    view = memoryview(bytearray(8 * cells)).cast("q")
    return make(view), view


def test_what_a_launch_writes() -> None:
    tick, cells = made(4)
    tick.rows = rows = [5, 6, 7]
    before = time.perf_counter_ns()
    begun, returned = tick(2, 9), tick(3)
    assert before <= begun <= returned <= time.perf_counter_ns()
    assert rows == [5, 6, 7, 9, begun, returned]
    assert cells.tolist() == [0, 0, begun, returned]


@pytest.mark.parametrize("arguments", [(4,), (-1,), (2**70,), ("0",), ()])
def test_a_cell_that_is_not_there_changes_nothing(arguments: tuple[Any, ...]) -> None:
    tick, cells = made(4)
    tick.rows = rows = []  # type: ignore[var-annotated]
    with pytest.raises((IndexError, OverflowError, TypeError)):
        tick(*arguments)
    assert (rows, cells.tolist()) == ([], [0] * 4)


def test_without_rows_nothing_is_written() -> None:
    tick, cells = made(4)
    with pytest.raises(IndexError):
        tick(0, 1)
    assert cells.tolist() == [0] * 4


def test_it_keeps_its_memory_and_lets_it_go() -> None:
    memory = bytearray(8)
    make = tick_type()
    assert make is not None
    tick: Any = make(memoryview(memory).cast("q"))
    tick.rows = rows = []  # type: ignore[var-annotated]
    held = sys.getrefcount(rows)
    with pytest.raises(BufferError):
        memory.clear()
    del tick
    memory.clear()
    assert sys.getrefcount(rows) == held - 1


def test_read_only_cells_are_refused() -> None:
    make = tick_type()
    assert make is not None
    with pytest.raises(BufferError):
        make(memoryview(bytes(8)).cast("q"))


def test_without_a_compiler_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(compiled._found, "stepscope_ticks", "no compiler")
    assert tick_type() is None


def test_another_clock_than_that_of_python_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ticks, "_CLOCK", "another")
    assert tick_type() is None
