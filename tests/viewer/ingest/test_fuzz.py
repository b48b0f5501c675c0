"""Random damage: opening never raises, and records that were not touched are still there."""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest.logs import read_logs
from stepscope.viewer.ingest.rows import IndexRows
from stepscope.viewer.ingest.sources import Source
from stepscope.viewer.store.open import open_trace
from tests.logs.hostile import ARTIFACTS, EVENTS, FIELDS
from tests.logs.plain_reader import FORM, places, records
from tests.logs.synthetic import LogBuilder, compile_records, recorded
from tests.viewer.client import Client
from tests.viewer.crawling import EVERY_PAGE, crawl

pytestmark = pytest.mark.slow


LOG = recorded().data
SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KEYS = (
    *FIELDS, "co_firstlineno", "duration_us", "start_time_us", "fail_user_frame_lineno", "config_suppress_errors",
    "has_guarded_code", "ph", "ts", "tid", "args", "ops", "key", "components", "time_saved_ns", "shape", "groups",
)  # fmt: skip
OWN = (
    "stepscope_launches", "stepscope_tensors", "stepscope_steps", "stepscope_values", "stepscope_value_layout",
    "stepscope_device_times", "stepscope_lifetimes", "stepscope_scheduler_memory",
)  # fmt: skip
NAMES = (*ARTIFACTS, *OWN)
IDS = b'"frame_id": 0, "frame_compile_id": 0, "attempt": 0'
objects = st.dictionaries(st.sampled_from(KEYS), values, max_size=6)


def read(data: bytes) -> IndexRows:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.log")
        path.write_bytes(data)
        return read_logs([Source(path, path, len(data), 0)])


def begins(rows: IndexRows) -> list[tuple[int, int, str]]:
    """Line, byte and event of each record that was read."""
    found = [(row["line"], row["byte"], row["event"]) for row in rows.tables["records"]]
    for part in rows.columns["records"]:
        found += zip(part["line"].tolist(), part["byte"].tolist(), part["event"].tolist(), strict=True)
    return found


@SLOW
@given(st.sampled_from(EVENTS), values | objects, values | objects)
def test_any_value_of_any_event(event: str, value: Any, payload: Any) -> None:
    log = LogBuilder()
    line = b'V0314 09:26:54.000000 4711 a.py:1] {"%s": %s, "frame_id": 0, "frame_compile_id": 0}\n\t%s\n' % (
        event.encode(),
        _json(value),
        _json(payload),
    )
    rows = read(compile_records(log).data + line + log.data)
    assert len(rows.tables["records"]) >= 2 * 7 + 1


@SLOW
@given(st.sampled_from(NAMES), values | objects)
def test_any_payload_of_any_artifact(name: str, payload: Any) -> None:
    log = recorded(steps=1, end=False)
    before = len(read(log.data).tables["records"])
    log.artifact(name, _json(payload), frame_id=0, frame_compile_id=0)
    with suppress(StepscopeError):  # a payload may say that it is of a newer format
        assert len(read(log.data).tables["records"]) == before + 1


PIECES = (
    b"\n",
    b"\t",
    b"\r\n",
    b"\r",
    b"V",
    b"\x00",
    b"\xff",
    b'"',
    b"}",
    b"{",
    b" ",
    b"]",
    b":",
    b"\n\n",
    b"\n\t",
    b"\nV",
)
edits = st.tuples(
    st.integers(0, len(LOG) - 1),
    st.binary(max_size=6) | st.lists(st.sampled_from(PIECES), max_size=3).map(b"".join),
    st.integers(0, 40),
)


@pytest.mark.parametrize("at_once_bytes", [0, 1 << 40])
@SLOW
@given(st.lists(edits, max_size=4))
def test_any_bytes_anywhere(at_once_bytes: int, edits: list[tuple[int, bytes, int]]) -> None:
    """By either way to read, records and problems are those that a plain reader finds."""
    data = bytearray(LOG)
    for at, new, removed in edits:
        data[at : at + removed] = new
    with suppress(StepscopeError), pytest.MonkeyPatch.context() as patch:
        patch.setattr("stepscope.viewer.ingest.logs.AT_ONCE_BYTES", at_once_bytes)
        rows = read(bytes(data))
        assert begins(rows) == [(one.line, one.byte, one.event or "unreadable") for one in records(bytes(data))]
        found = {(row["reason"], row["line"], row["byte"]) for row in rows.tables["problems"]}
        assert {place for place in found if place[0] in FORM} == places(bytes(data))


@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(st.sampled_from(EVENTS), values | objects, values | objects), min_size=15, max_size=30),
    st.lists(st.tuples(st.sampled_from(NAMES), values | objects), min_size=10, max_size=20),
)
def test_pages_of_any_records(events: list[tuple[str, Any, Any]], artifacts: list[tuple[str, Any]]) -> None:
    """No page fails, whatever the records of its kind hold."""
    log = recorded()
    rows = [(b'"%s": %s' % (event.encode(), _json(value)), payload) for event, value, payload in events]
    rows += [(b'"artifact": {"name": "%s", "encoding": "json"}' % name.encode(), payload) for name, payload in artifacts
             if name != "stepscope_run"]  # fmt: skip
    for head, payload in rows:
        log.raw(b"V0314 09:26:54.000000 4711 a.py:1] {%s, %s}\n\t%s\n" % (head, IDS, _json(payload)))
    with tempfile.TemporaryDirectory() as folder, open_trace(log.write(Path(folder, "x.log"))) as trace:
        visited = crawl(Client(trace), most=32, start=EVERY_PAGE)
        assert {status for status in visited.values() if status >= 400} == set(), visited


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
