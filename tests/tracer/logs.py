"""A log's own records by kind."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from stepscope.tracer.schema.constants import ARTIFACT_PREFIX
from tests.capture.logs import read_log


def read(path: Path) -> dict[str, list[Any]]:
    """Payloads of our records; fails on a header that is no record or a digest that is wrong."""
    records: dict[str, list[Any]] = defaultdict(list)
    for record in read_log(path):
        name = record.artifact or ""
        if name.startswith(ARTIFACT_PREFIX) and record.header["artifact"]["encoding"] == "json":
            records[name.removeprefix(ARTIFACT_PREFIX)].append(record.json())
    return records
