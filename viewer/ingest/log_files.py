"""Finds logs through fsspec: on this machine, in a shared file system or in object storage."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from stepscope.tracer.schema.log_format import HEADER
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest.line_prefixes import before_record, launcher_problem, prefix_of, without
from stepscope.viewer.ingest.other_files import what_it_is
from stepscope.viewer.ingest.recorder.ring_beside import ring_beside
from stepscope.viewer.ingest.sources import DEEPEST_FOLDER, LOG_PREFIXES, LOG_SUFFIXES, Source
from stepscope.viewer.ingest.unpack import is_packed, unpack

_HEAD_BYTES = 1 << 16
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class LogFile:
    """Address and version of a log when it was found."""

    address: str
    """A local path, or an address in fsspec's syntax."""
    size_bytes: int
    modified: str
    """ISO time, or another text by which the file system identifies versions."""


def resolve(address: str) -> tuple[Any, str]:
    """Return the fsspec file system of an address, and the path in it. Raises StepscopeError if there is none."""
    try:
        fs, path = fsspec.core.url_to_fs(address)
    except (ImportError, ValueError) as error:
        raise StepscopeError(f"{address} cannot be opened: {error}.") from None
    return fs, path.rstrip("/") or path


def find_log_files(address: str) -> list[LogFile]:
    """Find the log at `address`, or the logs in that folder, sorted by path.

    Raises StepscopeError if nothing is there, or no log.
    """
    fs, path = resolve(address)
    try:
        if fs.isfile(path):
            return [_only_log(fs, path)]
        if not fs.isdir(path):
            raise StepscopeError(f"There is no file or folder {address}: give a log or a folder of logs.")
        infos = fs.find(path, maxdepth=DEEPEST_FOLDER + 1, detail=True).values()
        logs = [info for info in infos if _is_log(fs, path, info)]
    except OSError as error:
        raise StepscopeError(f"{address} cannot be listed: {error}.") from None
    if not logs:
        raise StepscopeError(
            f"The folder {address} contains no log: record one with `stepscope run` or with TORCH_TRACE."
        )
    return [_log_file(fs, info) for info in sorted(logs, key=lambda info: PurePosixPath(info["name"]))]


def logs_beside(address: str) -> list[str]:
    """Return the addresses of all other files in the same folder whose names end like a log's."""
    fs, path = resolve(address)
    names = fs.ls(path.rpartition("/")[0] or "/", detail=False)
    return [_address(fs, name) for name in sorted(names) if name != path and name.endswith(LOG_SUFFIXES)]


@contextmanager
def plain_source(address: str) -> Iterator[Source]:
    """Yield the log as a local file: its own if it is local and uncompressed, else a temporary copy of its plain bytes.

    A log that cannot be opened has size 0 and a problem with the reason.
    """
    with tempfile.TemporaryDirectory(prefix="stepscope-") as folder:
        try:
            source = _as_written(_plain_source(address, Path(folder, "log")), Path(folder, "lines"))
        except OSError as error:
            source = Source(Path(address), Path(address), 0, 0, [("not_read", reason_of(error))])
        yield source


def head_of(address: str) -> bytes:
    """Return the first bytes of a log. Raises OSError."""
    fs, path = resolve(address)
    return bytes(fs.cat_file(path, start=0, end=_HEAD_BYTES))


def unpacked(head: bytes) -> bytes:
    """Decompress the first bytes of a file as far as possible; plain bytes are returned as they are."""
    if not is_packed(head):
        return head
    plain = io.BytesIO()
    unpack(io.BytesIO(head), plain)
    return plain.getvalue()


def has_record(head: bytes) -> bool:
    """Return whether a record begins in the first bytes of a file, which may be compressed."""
    head = unpacked(head)
    lines = head.removeprefix(_BYTE_ORDER_MARK).split(b"\n")
    return any(HEADER.match(line) for line in lines) or before_record(head) is not None


def change_of(log: LogFile) -> str | None:
    """Return why the bytes of `log` are no longer available, or None if the log is unchanged."""
    try:
        fs, path = resolve(log.address)
        found = _log_file(fs, fs.info(path))
        if (found.size_bytes, found.modified) != (log.size_bytes, log.modified):
            return "it has changed since"
        return None if log.size_bytes == 0 or has_record(head_of(log.address)) else "it is not a log"
    except OSError as error:
        return reason_of(error)
    except StepscopeError as error:
        return str(error)


def reason_of(error: OSError) -> str:
    """Return a short description of the error."""
    return "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror or str(error)


def _plain_source(address: str, copy: Path) -> Source:
    fs, path = resolve(address)
    info = fs.info(path)
    modified = _modified(fs, info)
    mtime_ns = int(modified.timestamp() * 1e9) if modified else 0
    ring = ring_beside(Path(path)) if isinstance(fs, LocalFileSystem) else None
    if isinstance(fs, LocalFileSystem) and not is_packed(head_of(address)):
        return Source(Path(address), Path(path), int(info["size"]), mtime_ns, ring=ring)
    with fs.open(path, "rb") as stream, copy.open("wb") as out:
        problem = unpack(stream, out)
    problems = [("truncated", problem)] if problem else []
    return Source(Path(address), copy, copy.stat().st_size, mtime_ns, problems, ring)


def _as_written(source: Source, copy: Path) -> Source:
    """Return the log without the prefixes of a launcher."""
    prefix = prefix_of(source.data_path)
    if prefix is None:
        return source
    with source.data_path.open("rb") as lines, copy.open("wb") as out:
        out.writelines(without(prefix, lines))
    problems = [*source.problems, launcher_problem(prefix)]
    return replace(source, data_path=copy, size=copy.stat().st_size, problems=problems)


def _only_log(fs: Any, path: str) -> LogFile:
    log = _log_file(fs, fs.info(path))
    head = head_of(log.address)
    if not has_record(head):
        known = what_it_is(unpacked(head), PurePosixPath(path).name)
        why = f"it is {known}" if known else "it does not begin with a record of stepscope or TORCH_TRACE"
        raise StepscopeError(f"{log.address} is not a log: {why}.")
    return log


def _is_log(fs: Any, folder: str, info: dict[str, Any]) -> bool:
    path = str(info["name"])
    *folders, name = path[len(folder) :].strip("/").split("/")
    if not name.endswith(LOG_SUFFIXES) or any(part.startswith(".") for part in folders):
        return False
    if info["type"] != "file" and not fs.isfile(path):
        return False
    try:
        return name.startswith(LOG_PREFIXES) or has_record(head_of(_address(fs, path)))
    except OSError:
        return False


def _log_file(fs: Any, info: dict[str, Any]) -> LogFile:
    modified = _modified(fs, info)
    text = modified.isoformat() if modified else str(fs.ukey(info["name"]))
    return LogFile(_address(fs, info["name"]), int(info["size"]), text)


def _address(fs: Any, path: str) -> str:
    """Return the address that opens `path` again, a plain path if it is local. Raises StepscopeError if not UTF-8."""
    shown = os.fsencode(path).decode("utf-8", "replace")
    if shown != path:
        raise StepscopeError(f"{shown} has a name that is not UTF-8: rename it, and it can be read.")
    return path if isinstance(fs, LocalFileSystem) else str(fs.unstrip_protocol(path))


def _modified(fs: Any, info: dict[str, Any]) -> datetime | None:
    """Return the time of modification or None, from the listing if possible: a query per log would be slow."""
    known = info.get("LastModified") or info.get("last_modified") or info.get("mtime")
    if isinstance(known, (int, float)):
        return datetime.fromtimestamp(known, timezone.utc)
    if isinstance(known, datetime):
        return known
    try:
        found = fs.modified(info["name"])
    except NotImplementedError:
        return None
    return found if isinstance(found, datetime) else None
