"""Exports say the same as the index, in forms that others read."""

from __future__ import annotations

import csv
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.exports.queries.tables import storages, tables
from stepscope.viewer.exports.write import export
from stepscope.viewer.memory.queries.run import live_curve
from stepscope.viewer.records.queries.artifacts import list_records
from stepscope.viewer.store.trace import Trace
from tests.logs.memory_logs import RUN_PEAK, start_of, training
from tests.logs.named_logs import WEIGHT, named_training
from tests.logs.synthetic import WRAPPER, LogBuilder, recorded

Open = Callable[[LogBuilder | bytes], Trace]
STORAGES = 8 + 7 + 7


@pytest.fixture
def trace(opened: Open) -> Trace:
    return opened(training(3))


def test_storages_as_csv_and_parquet(trace: Trace, tmp_path: Path) -> None:
    assert export(trace, "csv", "storages", tmp_path / "s.csv") == (tmp_path / "s.csv", STORAGES)
    with (tmp_path / "s.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == STORAGES
    saved = rows[3]
    assert (saved["name"], saved["storage_bytes"], saved["kind"]) == ("buf1", "1024", "allocated")
    assert (int(saved["born_ns"]), int(saved["died_ns"])) == (start_of(0) + 700, start_of(0) + 4_700)
    assert (saved["call"], saved["died_call"], saved["born_position"], saved["died_position"]) == ("0", "1", "1", "1")
    assert rows[0]["died_ns"] == ""
    export(trace, "parquet", "storages", tmp_path / "s.parquet")
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT * FROM '{tmp_path / 's.parquet'}'").fetchall()
    assert found == list(storages(trace))


def test_storages_have_the_names_of_the_program(opened: Open, tmp_path: Path) -> None:
    path, _ = export(opened(named_training()), "csv", "storages", tmp_path / "s.csv")
    with path.open(newline="") as file:
        found = {(row["graph"], row["name"]): row["program"] for row in csv.DictReader(file)}
    assert found["0", "primals_1"] == WEIGHT
    assert found["0", "buf2"] == "output 0"
    assert found["0", "buf0"] == found["1", "buf3"] == ""


def test_what_is_born_and_dies_makes_the_curve(trace: Trace) -> None:
    changes: dict[int, int] = {}
    for row in storages(trace):
        changes[row.born_ns] = changes.get(row.born_ns, 0) + row.storage_bytes
        if row.died_ns is not None:
            changes[row.died_ns] = changes.get(row.died_ns, 0) - row.storage_bytes
    live, totals = 0, []
    for ns in sorted(changes):
        live += changes[ns]
        totals.append(live)
    curve = live_curve(trace, 0)
    assert curve is not None
    assert curve.high_bytes == totals


@pytest.mark.slow
def test_every_table(trace: Trace, tmp_path: Path) -> None:
    for table in tables(trace):
        export(trace, "csv", table, tmp_path / f"{table}.csv")
    assert {"storages", "launches", "calls", "layouts"} <= set(tables(trace))


def test_the_memory_snapshot(trace: Trace, tmp_path: Path) -> None:
    path, count = export(trace, "memory_snapshot", "storages", tmp_path / "s.pickle")
    snapshot: dict[str, Any] = pickle.loads(path.read_bytes())
    assert count == STORAGES
    (events,) = snapshot["device_traces"]
    assert [event["time_us"] for event in events] == sorted(event["time_us"] for event in events)
    live: dict[int, int] = {}
    peak = 0
    for event in events:
        if event["action"] == "alloc":
            assert event["addr"] not in live
            live[event["addr"]] = event["size"]
        elif event["action"] == "free_completed":
            del live[event["addr"]]
        peak = max(peak, sum(live.values()))
    assert peak == RUN_PEAK
    (segment,) = snapshot["segments"]
    assert live == {segment["address"]: segment["total_size"]} == {512: 256}
    saved = next(event for event in events if event["frames"][0]["name"].startswith("buf1 "))
    assert saved["frames"] == [
        {"filename": "graph 0: 0/0 forward", "line": 0, "name": "buf1 (cpp_fused_relu_0)"},
        {"filename": "/src/model.py", "line": 11, "name": "forward"},
    ]


def test_errors_say_what_there_is(trace: Trace, tmp_path: Path) -> None:
    with pytest.raises(StepscopeError, match="there are: csv, parquet, memory_snapshot, chrome, sarif, html, raw"):
        export(trace, "xlsx", "storages", None)
    with pytest.raises(StepscopeError, match="--table nothing is not known; there are: allocator"):
        export(trace, "csv", "nothing", None)
    for form in ("csv", "memory_snapshot", "chrome"):
        with pytest.raises(StepscopeError, match="cannot be written"):
            export(trace, form, "storages", tmp_path / "no" / "folder")


def test_the_payload_of_a_record(opened: Open, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    trace = opened(recorded())
    (row,) = list_records(trace, kind="inductor_output_code").rows
    out = tmp_path / "code.py"
    assert export(trace, "raw", "", out, row.record) == (out, len(WRAPPER))
    assert out.read_text() == WRAPPER
    assert export(trace, "raw", "", None, row.record)[1] == len(WRAPPER)
    assert capfdbinary.readouterr().out.decode() == WRAPPER


def test_raw_says_what_is_wrong(opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = opened(recorded())
    bare = next(row.record for row in list_records(trace).rows if not row.payload_bytes)
    for record, sentence in (
        (None, "needs --record ID"), (10**6, "is not there"), (-1, "is not there"), (bare, "has no payload"),
    ):  # fmt: skip
        with pytest.raises(StepscopeError, match=sentence):
            export(trace, "raw", "", tmp_path / "x", record)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with pytest.raises(StepscopeError, match="not shown in a terminal"):
        export(trace, "raw", "", None, 0)


def test_a_trace_is_not_written_over(trace: Trace) -> None:
    before = trace.logs[0].path.read_bytes()
    for path in (trace.logs[0].path, trace.index):
        for form in ("csv", "chrome", "raw"):
            with pytest.raises(StepscopeError, match="is a file of the trace"):
                export(trace, form, "storages", path, 0)
    assert trace.logs[0].path.read_bytes() == before
