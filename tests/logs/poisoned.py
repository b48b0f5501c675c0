"""Builds a folder of logs with everything that a page can show, and with a script in every text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from stepscope.tracer.schema.log_format import payload_digest
from tests.logs import compile_logs, compile_summary_logs, memory_logs, memory_records, overflow_log, rank_logs
from tests.logs.hostile import SCRIPT
from tests.logs.plain_reader import Plain, read_plainly
from tests.logs.synthetic import LogBuilder

WORDS = {
    "encoding", "ph", "ts", "kind", "role", "dtype", "moment", "state", "phase", "level", "compile_id", "skipped",
    "expected_by", "found_by", "reasons", "function", "functions", "type", "pass_name", "method", "device", "devices",
}  # fmt: skip
"""Keys whose texts determine how a record is read, so that they must not change."""
LISTS_OF_CODE = {"inductor_collective_schedule", "recompile_reasons"}


def poisoned_logs() -> dict[str, LogBuilder]:
    """Return the logs by name, before the script is put into their records."""
    memory = memory_logs.training(keep=3, allocator=True, end=False, pid=2)
    memory.record(memory_records.mismatch()).record(memory_records.step_mismatch())
    memory.record(memory_records.growth([(0, 4), (2, 4)], ["list of 3 in keep of __main__"]))
    memory.record(memory_records.recompute())
    logs = {
        "values": overflow_log.recorded(pid=1),
        "memory": memory,
        "compiles": compile_logs.run(),
        "breaks": compile_summary_logs.with_breaks(),
        "recompiles": compile_summary_logs.with_recompiles(),
        "caches": compile_summary_logs.with_caches(),
        "cuda_graphs": compile_summary_logs.with_cuda_graphs(),
        "draft_export": compile_summary_logs.with_draft_export(),
        "vllm": compile_summary_logs.with_vllm(),
    }
    changed = rank_logs.with_change(3, changed=1, at=1, schedule=rank_logs.SCHEDULE[:2], operator="cos")
    return {**logs, **{f"rank_{rank}": log for rank, log in changed.items()}}


def write_poisoned(folder: Path, text: str = SCRIPT) -> Path:
    """Write the logs into `folder` as numbered ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, log in enumerate(poisoned_logs().values()):
        path = folder / f"stepscope_trace_rank_{number}_{number + 1}_x.log"
        path.write_bytes(poisoned(log.data, lambda plain: plain + text))
    return folder


def poisoned(data: bytes, spoil: Callable[[str], str]) -> bytes:
    """Return the same records with every text spoiled, except for those in `WORDS`."""
    lines = data.split(b"\n")
    return b"".join(_spoiled(record, lines[record.line - 1], spoil) for record in read_plainly(data))


def _spoiled(record: Plain, line: bytes, spoil: Callable[[str], str]) -> bytes:
    header = dict(record.header or {})
    event = record.event or ""
    if event == "artifact" or event.startswith("graph_dump"):
        kept = {key: header[event][key] for key in ("name", "encoding") if key in header[event]}
        header[event] = {**_value(header[event], spoil), **kept}
    else:
        header[event] = _value(header[event], spoil)
    prefix = line[: line.index(b"] ") + 2]
    payload = record.payload
    if payload is None:
        return prefix + json.dumps(header).encode() + b"\n"
    new = _payload(payload, spoil, record.kind or "")
    header["has_payload"] = payload_digest(new)
    return prefix + json.dumps(header).encode() + b"\n\t" + new.replace(b"\n", b"\n\t") + b"\n"


def _payload(payload: bytes, spoil: Callable[[str], str], kind: str) -> bytes:
    try:
        value = orjson.loads(payload)
    except ValueError:
        return "\n".join(
            spoil(line + "  # ") if line.strip() else line for line in payload.decode().split("\n")
        ).encode()
    return payload if kind in LISTS_OF_CODE else orjson.dumps(_value(value, spoil))


def _value(value: Any, spoil: Callable[[str], str], key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: inner if name in WORDS else _value(inner, spoil, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_value(inner, spoil, key) for inner in value]
    return spoil(value) if isinstance(value, str) else value
