"""A file of another tool that is given as a log is named as what it is, in one sentence, and never unpickled."""

from __future__ import annotations

import gzip
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest.log_files import find_log_files
from stepscope.viewer.ingest.sources import find_logs


class Bomb:
    """Ends the process that unpickles it."""

    def __reduce__(self) -> Any:
        return os._exit, (3,)


KINETO = {"schemaVersion": 1, "deviceProperties": [], "traceEvents": [{"ph": "X", "name": "aten::mm"}]}
SNAPSHOT = {"segments": [{"device": 0}], "device_traces": [[]], "bomb": Bomb()}
FLIGHT = {"version": "2.10", "pg_config": {"0": {"name": "default"}}, "entries": [], "bomb": Bomb()}
FILES = {
    "trace.json": (json.dumps(KINETO).encode(), "torch.profiler"),
    "trace.json.gz": (gzip.compress(json.dumps(KINETO).encode()), "torch.profiler"),
    "events.json": (b'[ {"name": "x", "ph": "B"} ]', "torch.profiler"),
    "snapshot.pickle": (pickle.dumps(SNAPSHOT), "memory snapshot"),
    "nccl_trace_rank_0": (pickle.dumps(FLIGHT), "flight recorder"),
    "flight.json": (b'{"version": "2.10", "pg_config": {}, "entries": []}', "flight recorder"),
    "other.pkl": (pickle.dumps([1, Bomb()]), "a pickle"),
    "trace.pftrace": (b"\x0a\x10\x08\x01" + b"\x00" * 20, "a Perfetto trace"),
    "tensor.pt": (b"PK\x03\x04" + b"\x00" * 40, "zip archive"),
    "report.html": (b"<!doctype html>\n<html>", "a report"),
    "notes.txt": (b"no log at all\n", "no record|does not begin with a record"),
}


@pytest.mark.parametrize("find", [lambda path: find_logs([str(path)]), lambda path: find_log_files(str(path))])
@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_tool_is_named(name: str, find: Any, tmp_path: Path) -> None:
    content, expected = FILES[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(StepscopeError, match=expected) as raised:
        find(tmp_path / name)
    assert str(raised.value).startswith(f"{tmp_path / name} is not a log: ")
    assert str(raised.value).count("\n") == 0


def test_in_a_folder_without_logs_too(tmp_path: Path) -> None:
    (tmp_path / "snapshot.pickle").write_bytes(FILES["snapshot.pickle"][0])
    with pytest.raises(StepscopeError, match=r"contains no log; snapshot\.pickle is a memory snapshot"):
        find_logs([str(tmp_path)])
