"""Random damage: opening never raises, and records that were not touched are still there."""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.viewer.synthetic import LogBuilder, compile_records, recorded
from viewer.errors import StepscopeError
from viewer.ingest.logs import read_logs
from viewer.ingest.rows import Rows
from viewer.ingest.sources import Source

LOG = recorded().data
SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KEYS = (
    "stack", "name", "encoding", "filename", "fail_type", "fail_reason", "co_name", "co_filename", "co_firstlineno",
    "restart_reasons", "duration_us", "start_time_us", "fail_user_frame_filename", "fail_user_frame_lineno",
    "config_suppress_errors", "has_guarded_code", "ph", "ts", "tid", "args", "cache_bypass_reason",
)  # fmt: skip
EVENTS = ("str", "dynamo_start", "compilation_metrics", "chromium_event", "inductor_output_code", "artifact", "link")
ARTIFACTS = (
    "recompile_reasons", "dynamo_graph_break_reason", "dynamo_error", "fx_graph_cache_bypass", "torch_version",
    "stepscope_run", "stepscope_graph", "stepscope_launches", "stepscope_tensors", "stepscope_step",
    "stepscope_values", "stepscope_value_layout", "stepscope_device_times", "stepscope_saved_tensor",
)  # fmt: skip
objects = st.dictionaries(st.sampled_from(KEYS), values, max_size=6)


def read(data: bytes) -> Rows:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.log")
        path.write_bytes(data)
        return read_logs([Source(path, path, len(data), 0)])


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
@given(st.sampled_from(ARTIFACTS), values | objects)
def test_any_payload_of_any_artifact(name: str, payload: Any) -> None:
    log = recorded(steps=1, end=False)
    before = len(read(log.data).tables["records"])
    log.artifact(name, _json(payload), frame_id=0, frame_compile_id=0)
    with suppress(StepscopeError):  # a payload may say that it is of a newer format
        assert len(read(log.data).tables["records"]) == before + 1


@SLOW
@given(st.lists(st.tuples(st.integers(0, len(LOG) - 1), st.binary(max_size=6), st.integers(0, 40)), max_size=4))
def test_any_bytes_anywhere(edits: list[tuple[int, bytes, int]]) -> None:
    data = bytearray(LOG)
    for at, new, removed in edits:
        data[at : at + removed] = new
    with suppress(StepscopeError):
        read(bytes(data))


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
