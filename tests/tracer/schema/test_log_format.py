"""The grammar: what is written is read back, to the byte."""

from __future__ import annotations

from datetime import datetime

import orjson
from hypothesis import given
from hypothesis import strategies as st

from stepscope.tracer.schema import log_format

PREFIX = log_format.encode_prefix(datetime(2026, 3, 4, 5, 6, 7, 89), 42, "torch/a.py", 7)


def test_prefix_is_torchs_own_form() -> None:
    assert PREFIX == b"V0304 05:06:07.000089 42 torch/a.py:7]"


def test_a_path_cannot_break_the_grammar() -> None:
    prefix = log_format.encode_prefix(datetime(2026, 1, 1), 1, "C:\\x\n\ty.py", 1)
    assert prefix.count(b":") == 3
    assert b"\n" not in prefix


@given(st.lists(st.one_of(st.none(), st.binary(max_size=60)), max_size=6))
def test_records_come_back_as_they_were_written(payloads: list[bytes | None]) -> None:
    data = b"".join(log_format.encode_record(PREFIX, b'{"e": 1}', payload) for payload in payloads)
    found = list(log_format.scan(data))
    assert len(found) == len(payloads)
    for place, payload in zip(found, payloads, strict=True):
        header = log_format.HEADER.match(data, place.start, place.header_end)
        assert header is not None
        assert header[11] == b'{"e": 1}'
        if payload is None:
            assert place.payload_start == place.end
        else:
            assert log_format.decode_payload(data[place.payload_start : place.end]) == payload


def test_an_artifact_names_the_digest_of_its_payload() -> None:
    data = log_format.encode_artifact(PREFIX, "stepscope_x", "json", b'{"a":\n1}', {"frame_id": 3})
    place = next(log_format.scan(data))
    header = log_format.HEADER.match(data, place.start, place.header_end)
    assert header is not None
    metadata = orjson.loads(header[11])
    assert metadata["artifact"] == {"name": "stepscope_x", "encoding": "json"}
    assert metadata["has_payload"] == log_format.payload_digest(b'{"a":\n1}')
    assert metadata["frame_id"] == 3
