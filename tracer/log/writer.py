"""The append-only log of one process."""

from __future__ import annotations

import errno
import json
import os
import secrets
import signal
import threading
import traceback
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import orjson

from stepscope.tracer.schema import log_format
from stepscope.tracer.schema.record import Record, artifact_name, to_payload


class OwnFile:
    """A new open file. The constructor raises OSError.

    A program may close descriptors that it does not own, and get their numbers for its own files, which must not be
    written.
    """

    def __init__(self, path: Path, flags: int, mode: int = 0o600) -> None:
        flags |= os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        self.descriptor = os.open(path, flags, mode)
        self._identity = _identity(os.fstat(self.descriptor))

    def checked(self) -> os.stat_result:
        """Return the status of the file. Raises OSError if the descriptor belongs to another file now."""
        found = os.fstat(self.descriptor)
        if _identity(found) != self._identity:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return found

    def close(self) -> None:
        with suppress(OSError):
            self.checked()
            os.close(self.descriptor)


def _identity(state: os.stat_result) -> tuple[int, int]:
    return state.st_dev, state.st_ino


class LogWriter:
    """Writes records to ``<directory>/stepscope_trace_rank_<r>_<pid>_<random>.log``, created at the first one.

    Each record is one `os.write` without buffering, so that it survives the process. After an OSError (full disk,
    removed folder) it stops writing and keeps the error in `failure`; it never raises. Records that a signal handler
    writes during a record follow it; an exception of the handler is raised when the record is complete.
    """

    def __init__(self, directory: Path, rank: int | None, about: int | None = None) -> None:
        """Create the writer; `about` is the process that the log is about, if this process writes it for another."""
        self.directory = directory
        self.rank = rank
        self._about = about
        pid = about or os.getpid()
        self.target = directory / f"stepscope_trace_rank_{rank or 0}_{pid}_{secrets.token_hex(4)}.log"
        """Path that the log has, or will have."""
        self.path: Path | None = None
        self.bytes_written = 0
        self.failure: OSError | None = None
        self._file: OwnFile | None = None
        self._closed = False
        self._lock = threading.RLock()
        self._waiting: deque[bytes] | None = None
        """Records that were added by this thread while one was being written; None while none is written."""

    def write(self, record: Record, envelope: Mapping[str, Any] | None = None) -> None:
        """Write one of stepscope's records as an artifact; `envelope` may contain the ids of a compile."""
        self.write_bytes(encoded(record, self._pid, envelope))

    def write_text(self, name: str, text: str, envelope: Mapping[str, Any]) -> None:
        """Write `text` as an artifact `name`."""
        self.write_bytes(_artifact(self._pid, name, "string", text.encode(), envelope))

    @property
    def _pid(self) -> int:
        return self._about or os.getpid()

    def write_bytes(self, data: bytes) -> None:
        """Append one encoded record."""
        with self._lock:
            if self._waiting is not None:
                self._waiting.append(data)
                return
            self._waiting = deque([data])
            try:
                while self._waiting:
                    self._append(self._waiting.popleft())
            finally:
                self._waiting = None

    def check_file(self) -> None:
        """Stop writing if the file was removed, since it could not be read."""
        with self._lock:
            if self._file is None or self._waiting is not None:
                return
            try:
                if self._file.checked().st_nlink == 0:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            except OSError as error:
                self.failure = error
                self.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._file is not None:
                file, self._file = self._file, None
                file.close()

    def abandon(self) -> None:
        """Close the parent's file in a forked child without changing it."""
        self._lock = threading.RLock()
        self.close()

    def _append(self, data: bytes) -> None:
        if self.failure is not None or self._closed:
            return
        raised = None
        try:
            if self._file is None:
                self._file = self._open()
            self._file.checked()
            raised = _append_whole(self._file.descriptor, memoryview(data))
            self.bytes_written += len(data)
        except OSError as error:
            self.failure = error
            self.close()
        if raised is not None:
            raise raised

    def _open(self) -> OwnFile:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.path = self.target
        return OwnFile(self.path, os.O_WRONLY | os.O_APPEND)


def encoded(record: Record, pid: int, envelope: Mapping[str, Any] | None = None) -> bytes:
    """Return one of stepscope's records, as an artifact of the process `pid`."""
    try:
        payload = orjson.dumps(record, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:  # a path or an argument that is not UTF-8, an integer of more than 64 bits
        text = json.dumps(to_payload(record), ensure_ascii=False, default=lambda array: array.tolist())
        payload = text.encode("utf-8", "replace")
    return _artifact(pid, artifact_name(record), "json", payload, envelope or {})


def _artifact(pid: int, name: str, encoding: str, payload: bytes, envelope: Mapping[str, Any]) -> bytes:
    prefix = log_format.encode_prefix(datetime.now(), pid, "tracer/records.py", 1)
    return log_format.encode_artifact(prefix, name, encoding, payload, envelope)


def _append_whole(descriptor: int, data: memoryview) -> BaseException | None:
    """Append `data`, or nothing of it if OSError is raised; return the exception of a signal handler meanwhile."""
    start = os.lseek(descriptor, 0, os.SEEK_END)
    raised: BaseException | None = None
    while True:
        try:
            done = os.lseek(descriptor, 0, os.SEEK_CUR) - start  # a handler's exception may lose the result of a write
            if done >= len(data):
                return raised
            os.write(descriptor, data[done:])
        except BaseException as error:
            if isinstance(error, Exception) and not is_from_handler(error):
                with suppress(OSError):
                    os.ftruncate(descriptor, start)
                raise
            raised = error


def is_from_handler(error: BaseException) -> bool:
    """Return whether an installed signal handler has raised `error`; then it is the program's, as for a time limit."""
    codes = {frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)}
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        function = handler.__func__ if isinstance(handler, MethodType) else handler
        if isinstance(function, FunctionType) and function.__code__ in codes:
            return True
    return False
