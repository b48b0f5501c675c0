"""What calls inside others allocate is in the curve of the outer one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from stepscope.tracer.schema.launches import Calls, Launches
from stepscope.tracer.schema.memory import StorageKind
from stepscope.viewer.memory.queries.alive import alive_in_call
from stepscope.viewer.memory.queries.graph import graph_memory
from stepscope.viewer.memory.queries.summary import measured_peaks
from stepscope.viewer.overview.queries.damage import problem_counts
from stepscope.viewer.store.trace import Trace
from tests.logs.memory_logs import NEW, Met, layout, lifetimes
from tests.logs.synthetic import LogBuilder, run
from tests.logs.value_logs import Program

Open = Callable[[LogBuilder | bytes], Trace]
Storages = Sequence[tuple[str, StorageKind, int, int, Met]]
OUTER: Storages = [
    ("x", "input", 8, 0, NEW), ("buf0", "allocated", 10, 0, NEW), ("buf1", "returned", 50, 1, (-1, None, 1)),
    ("buf2", "allocated", 7, 2, NEW),
]  # fmt: skip


def nested(
    outer: Storages = OUTER,
    outer_deaths: Sequence[tuple[int, int]] = (),
    calls: Sequence[tuple[Storages, Sequence[tuple[int, int]]]] = (),
    parents: Sequence[int | None] = (None, 0),
    outside: Sequence[tuple[int, int, int]] = (),
) -> LogBuilder:
    """Call 0 has launches at 1000, 2000, 3000 and ends at 4000; `calls` run inside the second one, one after the other
    or in each other, two launches each: call n from 2000 + 100 n, launches 10 and 20 later, for 90 - 10 n."""
    program = Program().launch("a", ["x"], ["buf0"]).launch("true_graph_0", ["buf0"], ["buf1"], "subgraph")
    program.launch("b", ["buf1"], ["buf2"])
    inner = range(1, len(calls) + 1)
    graph = replace(program.graph(), functions=["call", "true_graph_0"])
    starts = [2000 + 100 * n for n in inner]
    launches = Calls(
        [0, *inner], [0] * (len(calls) + 1), [0, *(1 for _ in inner)], [0] * (len(calls) + 1), [1] * (len(calls) + 1),
        list(parents), [900, *starts], [3100, *(90 for _ in inner)], [3, *(2 for _ in inner)],
        ["ok"] * (len(calls) + 1),
    )  # fmt: skip
    at = [1000, 2000, 3000, *(start + after for start in starts for after in (10, 20))]
    log = LogBuilder().record(run()).record(graph)
    log.record(Launches(launches, [0, 1, 2, *(0 for _ in inner for _ in (0, 1))], at, [ns + 5 for ns in at]))
    log.record(layout(0, 0, outer, outer_deaths))
    for n, (storages, deaths) in zip(inner, calls, strict=True):
        log.record(layout(n, 0, storages, deaths, function=1))
    return log.record(lifetimes([0, *inner], [0, *inner], outside))


def curve(trace: Trace) -> list[int]:
    memory = graph_memory(trace, 0, call=0)
    assert memory is not None
    assert memory.positions is not None
    assert memory.measured_peak is not None
    assert memory.measured_peak.peak_bytes == max(memory.positions.live_bytes) == measured_peaks(trace)[0].peak_bytes
    for position, live in enumerate(memory.positions.live_bytes):
        alive = alive_in_call(trace, 0, position)
        assert alive is not None
        assert alive.storage_bytes - alive.base_bytes == live
    return memory.positions.live_bytes


MAKES: Storages = [
    ("buf0", "input", 10, 0, (1, None, 1)),
    ("r", "allocated", 50, 1, NEW),
    ("t", "allocated", 100, 0, NEW),
]
"""What it returns is allocated when the temporary is dead."""


def test_a_temporary_of_a_subgraph_is_at_the_outer_peak(opened: Open) -> None:
    trace = opened(nested(calls=[(MAKES, [(2, 1)])]))
    assert problem_counts(trace) == {}
    assert curve(trace) == [10, 110, 67, 67]
    alive = alive_in_call(trace, 0)
    assert alive is not None
    assert [(row.name, row.call) for row in alive.rows] == [("t", 1), ("buf0", 0), ("x", 0)]


def test_both_alive_at_once_are_both_counted(opened: Open) -> None:
    assert curve(opened(nested(calls=[(MAKES, [(2, 2)])]))) == [10, 160, 67, 67]


def test_what_a_call_inside_frees_of_the_outer_one_counts_while_it_runs(opened: Open) -> None:
    assert curve(opened(nested(outer_deaths=[(1, 2)], calls=[(MAKES, [(0, 1), (2, 1)])]))) == [10, 110, 57, 57]


def test_calls_one_after_the_other_hand_on_what_they_made(opened: Open) -> None:
    """A loop's body: each makes 30, which lives until the next one has made its own; the last one is returned."""
    first: Storages = [("t", "allocated", 4, 1, NEW), ("carry", "allocated", 30, 0, NEW)]
    again: Storages = [("carry", "input", 30, 0, (1, None, 1)), ("carry", "allocated", 30, 0, NEW)]
    outer: Storages = [
        ("buf0", "allocated", 10, 0, NEW), ("buf1", "returned", 30, 1, (-3, None, 1)), ("buf2", "allocated", 7, 2, NEW),
    ]  # fmt: skip
    log = nested(outer=outer, calls=[(first, [(0, 2)]), (again, [(0, 1)]), (again, [(0, 1)])], parents=[None, 0, 0, 0])
    assert curve(opened(log)) == [10, 70, 47, 47]


def test_calls_in_each_other(opened: Open) -> None:
    """Call 2 is a part of call 1, and later than its launches: at the end of it."""
    deep: Storages = [("d", "allocated", 1000, 0, NEW)]
    trace = opened(nested(calls=[(MAKES, [(2, 1)]), (deep, [(0, 2)])], parents=[None, 0, 1]))
    assert curve(trace) == [10, 1060, 67, 67]


def test_what_a_call_inside_keeps_counts_until_it_dies(opened: Open) -> None:
    outer: Storages = [("buf0", "allocated", 10, 0, NEW)]
    keeps: Storages = [("kept", "allocated", 100, 0, NEW)]
    assert curve(opened(nested(outer=outer, calls=[(keeps, [])], outside=[(1, 0, 3500)]))) == [10, 110, 110, 10]


@pytest.mark.parametrize("parents", [[None, None], [None, 99], [None, 1]])
def test_calls_that_stand_alone_add_nothing(opened: Open, parents: list[int | None]) -> None:
    outer: Storages = [("buf0", "allocated", 10, 0, NEW)]
    memory = graph_memory(opened(nested(outer=outer, calls=[(MAKES, [(2, 1)])], parents=parents)), 0, call=0)
    assert memory is not None
    assert memory.positions is not None
    assert memory.positions.live_bytes == [10, 10, 10, 10]


def test_a_death_that_the_inner_and_the_outer_call_saw_is_one(opened: Open) -> None:
    trace = opened(nested(outer_deaths=[(1, 2)], calls=[(MAKES, [(0, 1), (2, 1)])]))
    assert problem_counts(trace) == {}
    assert curve(trace) == [10, 110, 57, 57]


def test_deaths_in_two_calls_that_are_not_in_each_other_do_not_fit_together(opened: Open) -> None:
    again: Storages = [("buf0", "input", 10, 0, (2, None, 1)), *MAKES[1:]]
    calls = [(MAKES, [(0, 1), (2, 1)]), (again, [(0, 1), (2, 1)])]
    trace = opened(nested(calls=calls, parents=(None, 0, 0)))
    assert problem_counts(trace)["broken_lifetimes"] == 1
