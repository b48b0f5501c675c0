"""Reading a log's own records in tests."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import orjson

from tracer import log_format
from tracer.records import ARTIFACT_PREFIX


def read(path: Path) -> dict[str, list[Any]]:
    """Payloads of our records by kind; fails on a header that is no record or a digest that is wrong."""
    data = path.read_bytes()
    records: dict[str, list[Any]] = defaultdict(list)
    for place in log_format.scan(data):
        header = log_format.HEADER.match(data, place.start, place.header_end)
        assert header is not None, data[place.start : place.header_end]
        metadata = orjson.loads(header[11])
        payload = log_format.decode_payload(data[place.payload_start : place.end])
        if "has_payload" in metadata:
            assert metadata["has_payload"] == log_format.payload_digest(payload)
        name = metadata["artifact"]["name"] if "artifact" in metadata else ""
        if name.startswith(ARTIFACT_PREFIX) and metadata["artifact"]["encoding"] == "json":
            records[name.removeprefix(ARTIFACT_PREFIX)].append(orjson.loads(payload))
    return records


def read_folder(folder: Path) -> dict[str, list[Any]]:
    """The records of the only log in `folder`."""
    (path,) = folder.glob("*.log")
    return read(path)
