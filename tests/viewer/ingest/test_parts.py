"""Rows of a long log are made in parts and kept in a file meanwhile; the index is the same."""

from __future__ import annotations

import errno
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope.viewer.ingest import long_columns, spill
from stepscope.viewer.ingest import rows as rows_module
from stepscope.viewer.ingest.columns import Texts, as_column
from stepscope.viewer.ingest.recorder import launch_order, value_columns
from stepscope.viewer.ingest.recorder.value_parts import ValuePart
from stepscope.viewer.overview.queries.damage import problem_counts
from stepscope.viewer.store import large_tables
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import LogBuilder
from tests.logs.value_logs import NAN, Program, Stat, ValueLog, values_of

Rows = Sequence[tuple[Any, ...]]
PART_ROWS = 7
TABLES = ("launches", "value_rows", "input_rows", "calls", "problem_counts")


def program() -> Program:
    """Return a graph with an input that no launch names, read before the first launch."""
    graph = Program(again=True)
    for i in range(5):
        graph.allocate(f"buf{i}").launch("cpp_fused", [f"buf{i - 1}" if i else "primals_1"], [f"buf{i}"], "cpp")
    graph.layout.append((-1, 0, "before", "primals_2"))
    return graph


def log_out_of_order() -> LogBuilder:
    """Return a log in which the values of some calls come long after those of later ones."""
    graph = program()
    log = ValueLog(graph)
    late = []
    for number in range(12):
        before = log.log.data
        log.call(graph, step=number, buf2=Stat(mean=float(number), zero=number), buf3=NAN, buf4=Stat(exact=(number, 9)))
        if number in (1, 2, 7):
            values = log.log.data[log.log.data.rindex(b"\nV") + 1 :]
            assert len(before) < len(log.log.data) - len(values)
            log.log.data = log.log.data[: -len(values)]
            late.append(values)
    log.log.data += b"".join(reversed(late))
    log.log.record(values_of([3], [0], [NAN] * len(graph.layout)))  # a second time
    log.log.record(values_of([99], [0], [NAN] * len(graph.layout)))  # of a call that is not in the log
    return log.end()


def tables(trace: Trace) -> dict[str, Rows]:
    return {table: trace.cursor().execute(f"SELECT * FROM {table} ORDER BY ALL").fetchall() for table in TABLES}


def in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (rows_module, launch_order, value_columns):
        monkeypatch.setattr(module, "AT_ONCE_ROWS", PART_ROWS)
    monkeypatch.setattr(large_tables, "_ROWS", 2 * PART_ROWS)


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, Rows]:
    with open_trace(log_out_of_order().write(tmp_path / "stepscope_trace_whole.log")) as trace:
        return tables(trace)


def test_rows_in_parts_are_the_same(tmp_path: Path, whole: dict[str, Rows], monkeypatch: pytest.MonkeyPatch) -> None:
    in_small_parts(monkeypatch)
    with open_trace(log_out_of_order().write(tmp_path / "stepscope_trace_parts.log")) as trace:
        assert tables(trace) == whole
        assert problem_counts(trace) == {"broken_values": 1, "unknown_launch": 1}
        assert len(whole["launches"]) == 12 * 5
        assert len(whole["value_rows"]) == 12 * 10


@pytest.mark.parametrize("cores", [1, 2])
def test_rows_come_in_their_order_however_many_threads_insert_them(
    tmp_path: Path, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_small_parts(monkeypatch)
    monkeypatch.setattr(large_tables, "_cores", lambda connection: cores)
    with open_trace(log_out_of_order().write(tmp_path / "stepscope_trace_threads.log")) as trace:
        for table, column in (("launches", "launch"), ("value_rows", "value"), ("calls", "call")):
            ids = [row[0] for row in trace.cursor().execute(f"SELECT {column} FROM {table}").fetchall()]
            assert len(ids) > 4
            assert ids == sorted(ids)


def test_ids_of_values_follow_their_launches(whole: dict[str, Rows]) -> None:
    of_values = [(row[2], row[9] == "after") for row in sorted([*whole["value_rows"]])]
    assert of_values == sorted(of_values)
    ids = sorted(row[0] for table in ("value_rows", "input_rows") for row in whole[table])
    assert ids == list(range(12 * 11))


def full(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, "no space left on device")


@pytest.mark.parametrize("make_file", [None, full], ids=["in a file", "without room for one"])
def test_rows_that_are_kept_outside_of_memory_are_the_same(
    tmp_path: Path, whole: dict[str, Rows], make_file: Callable[..., Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_small_parts(monkeypatch)
    monkeypatch.setattr(spill, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(long_columns, "IN_MEMORY_ROWS", 7)
    if make_file is not None:
        monkeypatch.setattr(tempfile, "TemporaryFile", make_file)
    with open_trace(log_out_of_order().write(tmp_path / "stepscope_trace_spilt.log")) as trace:
        assert tables(trace) == whole


def test_a_refused_row_costs_itself_in_a_large_table(
    tmp_path: Path, whole: dict[str, Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_small_parts(monkeypatch)
    made = ValuePart.columns

    def with_a_bad_text(part: ValuePart) -> Any:
        columns = dict(made(part))
        if not part.of_inputs and part.rows["value"]()[0] < PART_ROWS:
            part_of = columns["part"]
            assert isinstance(part_of, Texts)
            columns["part"] = as_column(["\ud800", *part_of.plain()[1:]])
        return columns

    monkeypatch.setattr(ValuePart, "columns", with_a_bad_text)
    with open_trace(log_out_of_order().write(tmp_path / "stepscope_trace_refused.log")) as trace:
        found = tables(trace)
        assert found["value_rows"] == whole["value_rows"][1:]
        assert found["input_rows"] == whole["input_rows"]
        assert problem_counts(trace)["not_understood"] == 1


def interleaved(threads: int, calls_each: int, chance: random.Random) -> tuple[Any, ...]:
    """Return calls of several threads in the order of their ends, some of which have no launch."""
    calls = []
    for thread in range(threads):
        ns = 0
        for number in range(calls_each):
            starts = sorted(ns + chance.randrange(50) for _ in range(chance.choice([0, 1, 3, 9])))
            ns += 60
            calls.append((ns + chance.randrange(200), number // 3 + thread % 2, starts))
    calls.sort()
    count = np.array([len(starts) for _, _, starts in calls])
    step = np.array([step for _, step, _ in calls])
    earliest = np.array([starts[0] if starts else 0 for _, _, starts in calls])
    return np.cumsum(count) - count, count, step, earliest, np.array([ns for *_, starts in calls for ns in starts])


@pytest.mark.parametrize("seed", range(5))
def test_launches_are_sorted_in_parts_like_all_at_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_order, "AT_ONCE_ROWS", PART_ROWS)
    first, count, step, earliest, starts = interleaved(3, 40, random.Random(seed))
    parts = list(launch_order.sorted_parts(first, count, step, earliest, starts))
    launches = list(enumerate(zip(np.repeat(step, count).tolist(), starts.tolist(), strict=True)))
    assert np.concatenate(parts).tolist() == [at for at, _ in sorted(launches, key=lambda one: one[1])]
    assert {len(part) for part in parts[:-1]} == {PART_ROWS}
    assert 0 < len(parts[-1]) <= PART_ROWS


@pytest.mark.parametrize("make_file", [None, full], ids=["in a file", "without room for one"])
def test_a_long_column_is_what_was_added(make_file: Callable[..., Any] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_columns, "IN_MEMORY_ROWS", 8)
    if make_file is not None:
        monkeypatch.setattr(tempfile, "TemporaryFile", make_file)
    column = long_columns.LongColumn()
    for start in range(0, 40, 3):
        column.extend(range(start, start + 3))
    assert len(column) == 42
    found, room = column.ints(), long_columns.room_for(42)
    room.values[::2] = 7
    for mapped in (found, room):
        mapped.let_go()
    assert found.values.tolist() == list(range(42))
    assert room.values.tolist() == [7, 0] * 21
