"""The append-only log of one process."""

from __future__ import annotations

import json
import os
import secrets
import threading
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from tracer import log_format
from tracer.records import Record, artifact_name, to_payload


class LogWriter:
    """Writes records to ``<directory>/stepscope_trace_rank_<r>_<pid>_<random>.log``, made at the first one.

    One `os.write` per record; nothing is buffered here, so what was written survives the process. After an
    OSError (full disk, removed folder) it writes no more and keeps the error in `failure`: it never raises.
    """

    def __init__(self, directory: Path, rank: int | None) -> None:
        self.directory = directory
        self.rank = rank
        self.target = directory / f"stepscope_trace_rank_{rank or 0}_{os.getpid()}_{secrets.token_hex(4)}.log"
        """Where the log will be."""
        self.path: Path | None = None
        self.bytes_written = 0
        self.failure: OSError | None = None
        self._descriptor: int | None = None
        self._closed = False
        self._lock = threading.RLock()

    def write(self, record: Record, envelope: dict[str, Any] | None = None) -> None:
        """Write one of our records as an artifact; `envelope` may carry the ids of a compile."""
        try:
            payload = orjson.dumps(record, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)
        except TypeError:  # a path or an argument that is not UTF-8, an integer of more than 64 bits
            text = json.dumps(to_payload(record), ensure_ascii=False, default=lambda array: array.tolist())
            payload = text.encode("utf-8", "replace")
        self.write_artifact(artifact_name(record), "json", payload, envelope)

    def write_artifact(self, name: str, encoding: str, payload: bytes, envelope: dict[str, Any] | None = None) -> None:
        prefix = log_format.encode_prefix(datetime.now(), os.getpid(), "tracer/records.py", 1)
        self.write_bytes(log_format.encode_artifact(prefix, name, encoding, payload, envelope or {}))

    def write_bytes(self, data: bytes) -> None:
        """Append one encoded record."""
        with self._lock:
            if self.failure is not None or self._closed:
                return
            try:
                if self._descriptor is None:
                    self._open()
                assert self._descriptor is not None
                view = memoryview(data)
                while view:
                    view = view[os.write(self._descriptor, view) :]
                self.bytes_written += len(data)
            except OSError as error:
                self.failure = error
                self.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._descriptor is not None:
                descriptor, self._descriptor = self._descriptor, None
                os.close(descriptor)

    def abandon(self) -> None:
        """In a forked child: let go of the parent's file without touching it, with a lock of its own."""
        self._lock = threading.RLock()
        self.close()

    def _open(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.path = self.target
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        self._descriptor = os.open(self.path, flags, 0o600)
