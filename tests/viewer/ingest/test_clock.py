"""Time stamps without a year and a zone."""

from __future__ import annotations

import calendar
import os
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import orjson
import pytest

from stepscope.viewer.ingest.clock import clock_of
from stepscope.viewer.records.queries.artifacts import list_records
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs import synthetic
from tests.logs.synthetic import UNIX_NS, LogBuilder, recorded

Open = Callable[[LogBuilder | bytes], Trace]


def stamp(year: int, month: int, day: int, hour: int = 12) -> int:
    return calendar.timegm((year, month, day, hour, 0, 0)) * 10**9


def line(when: str) -> bytes:
    return f'V{when} 1 a.py:1] {{"link": {{}}}}\n'.encode()


def times(data: bytes, mtime_ns: int, path: Path) -> list[int | None]:
    path.write_bytes(data)
    os.utime(path, ns=(mtime_ns, mtime_ns))
    with open_trace(path) as trace:
        return [row.time_unix_ns for row in list_records(trace).rows]


@pytest.mark.parametrize(
    ("when", "mtime", "year"),
    [
        ("0314 12:00:00.000000", stamp(2026, 3, 14), 2026),
        ("1231 12:00:00.000000", stamp(2026, 1, 5), 2025),
        ("0101 12:00:00.000000", stamp(2025, 12, 31, 23), 2026),
        ("0229 12:00:00.000000", stamp(2026, 3, 1), 2024),
    ],
)
def test_the_year_of_a_plain_log_comes_from_its_mtime(when: str, mtime: int, year: int, tmp_path: Path) -> None:
    (time_ns,) = times(line(when), mtime, tmp_path / "x.log")
    assert time_ns == stamp(year, int(when[:2]), int(when[2:4]))


def test_a_log_goes_on_over_new_year(tmp_path: Path) -> None:
    data = line("1231 12:00:00.000000") + line("0101 12:00:00.000000")
    assert times(data, stamp(2026, 1, 1, 13), tmp_path / "x.log") == [stamp(2025, 12, 31), stamp(2026, 1, 1)]


def test_microseconds_and_nanoseconds(tmp_path: Path) -> None:
    data = line("0314 12:00:00.000001") + line("0314 12:00:00.000001234")
    begin = stamp(2026, 3, 14)
    assert times(data, begin, tmp_path / "x.log") == [begin + 1_000, begin + 1_234]


@pytest.mark.parametrize("hours", [-8, 0, 2, 14])
def test_the_zone_of_a_plain_log_comes_from_its_spans(hours: int) -> None:
    local = datetime(2024, 12, 6, 15, 18, 15)
    unix_ns = calendar.timegm((local - timedelta(hours=hours)).timetuple()) * 10**9
    span = orjson.dumps({"name": "x", "ph": "B", "ts": unix_ns / 1000 - 37_000})
    log = LogBuilder()
    log._time = local
    clock = clock_of(log.torch("chromium_event", {}, span).data, stamp(2030, 1, 1))
    assert clock.utc_offset_s == hours * 3600
    parts = (b"12", b"06", b"15", b"18", b"15", b"000000")
    assert clock.time_ns(parts) == unix_ns


def test_the_run_record_knows_best(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "START", synthetic.START + timedelta(hours=2))
    trace = opened(recorded(utc_offset_s=7200))
    assert list_records(trace, limit=1).rows[0].time_unix_ns == UNIX_NS + 1_000_000
