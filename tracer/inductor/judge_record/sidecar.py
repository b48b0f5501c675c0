"""Keeps the judge's records beside the compile cache, under the key of the wrapper, for warm runs."""

from __future__ import annotations

import zlib

import orjson

from stepscope.tracer.inductor.sidecars import sidecar_path, write_file
from stepscope.tracer.judge.record import GraphRecord, from_json, to_json

SUFFIX = ".judge.json.z"


def write(key: str, records: list[GraphRecord]) -> None:
    """Save `records` for warm runs, as compressed JSON. Raises OSError."""
    write_file(sidecar_path(key, SUFFIX), zlib.compress(orjson.dumps(to_json(records)), 1))


def read(key: str) -> list[GraphRecord]:
    """Return the records saved under `key`. Raises OSError if there are none, ValueError if they cannot be used."""
    try:
        return from_json(orjson.loads(zlib.decompress(sidecar_path(key, SUFFIX).read_bytes())))
    except zlib.error as error:
        raise ValueError(f"it is damaged: {error}") from None
