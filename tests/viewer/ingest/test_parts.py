"""Rows of a long log are made in parts and kept in a file meanwhile; the index is the same."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from stepscope.viewer.ingest import rows as rows_module
from stepscope.viewer.ingest import spill
from stepscope.viewer.ingest.columns import Texts, as_column
from stepscope.viewer.ingest.recorder import launch_columns, value_columns
from stepscope.viewer.ingest.recorder.value_parts import ValuePart
from stepscope.viewer.overview.queries.damage import problem_counts
from stepscope.viewer.store import index as index_file
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
    for module in (rows_module, launch_columns, value_columns, index_file):
        monkeypatch.setattr(module, "AT_ONCE_ROWS", PART_ROWS)


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
