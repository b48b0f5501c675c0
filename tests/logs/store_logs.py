"""Builds a folder of logs of all kinds, and compares a STORE with the index of the same logs."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

from stepscope.viewer.store import sql
from stepscope.viewer.store.parquet.layout import ID_BITS, TABLES
from stepscope.viewer.store.trace import Trace
from tests.logs.memory_logs import training
from tests.logs.synthetic import LogBuilder, compile_records, recorded

_ID = re.compile(r"\d{11,16}")
_ID_MASK = (1 << ID_BITS) - 1
_NAMED_ID = re.compile(r"\b(call|graph|launch|record) \d+")
_KEYS_WITH_IDS = {"call", "code", "graph", "launch", "record", "records", "site"}


def write_logs(folder: Path) -> list[Path]:
    """Write two ranks, a restart, a compressed log, a damaged one, a forked child, unknown records and memory."""
    names = iter("abcdefgh")

    def path(suffix: str = ".log") -> Path:
        return folder / f"stepscope_trace_{next(names)}_rank_1_x{suffix}"

    child = LogBuilder(99).torch("dynamo_start", {"stack": [{"line": 3, "name": "f", "filename": 7}]}, frame_id=0,
                                 frame_compile_id=0, attempt=0)  # fmt: skip
    packed = path(".log.gz")
    damaged = recorded(pid=5, rank=3)
    logs = [
        recorded(pid=1, rank=0, world_size=2).write(path()),
        recorded(pid=2, rank=1, world_size=2, steps=2, end=False).write(path()),
        recorded(pid=3, rank=1, world_size=2).write(path()),
        compile_records(LogBuilder(4).torch("from_tomorrow", {"a": 1})).write(path()),
        LogBuilder().raw(b"no record\n" + damaged.data[:2000] + b"\xff\n" + damaged.data[2000:-40]).write(path()),
        child.write(path()),
        training(2).write(path()),
    ]
    packed.write_bytes(gzip.compress(recorded(pid=6, rank=2).torch("from_tomorrow", {}).data))
    return sorted([*logs, packed])


def without_ids(value: Any, key: str = "") -> Any:
    """Return the value with every row id replaced by #."""
    if isinstance(value, dict):
        return {name: without_ids(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [without_ids(one, key) for one in value]
    if type(value) is int and key.rpartition("_")[2] in _KEYS_WITH_IDS:
        return "#"
    if isinstance(value, str):
        return re.sub(r"\d+", "#", value) if key == "page" else _NAMED_ID.sub(r"\1 #", value)
    return value


def tables(trace: Trace, log: int) -> dict[str, list[str]]:
    """Return the sorted rows of one log in every table, with ids that start at 0."""
    found = {}
    for table in TABLES:
        columns = [name for (name, *_) in sql.rows(trace, f"DESCRIBE SELECT * FROM {table}")]
        if table == "meta":
            continue
        rows = sql.rows(trace, f"SELECT * FROM {table}")
        mine = [row for row in rows if _log_of(columns, row) == log]
        found[table] = sorted(repr(tuple(map(_from_0, _logless(columns, row)))) for row in mine)
    return found


def _log_of(columns: list[str], row: tuple[Any, ...]) -> int:
    if "log" in columns:
        return int(row[columns.index("log")])
    return int(row[0]) >> ID_BITS


def _logless(columns: list[str], row: tuple[Any, ...]) -> list[Any]:
    return [0 if name == "log" else value for name, value in zip(columns, row, strict=True)]


def _from_0(value: Any) -> Any:
    """Convert ids of later logs to those of the first log, in JSON text too."""
    if type(value) is int and 1 << ID_BITS <= value < 1 << 53:
        return value & _ID_MASK
    if isinstance(value, str):
        return _ID.sub(lambda found: str(_from_0(int(found[0]))), value)
    return value
