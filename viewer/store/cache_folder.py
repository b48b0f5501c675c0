"""Manages the indexes and unpacked logs in the user's cache folder, whose size is limited.

The index of a trace keeps its name until its logs change. Of the files that are not in use, the least recently used are
removed first. Nothing is ever written beside a log.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows does not remove open files
    fcntl = None  # type: ignore[assignment]

from stepscope.tracer.schema.byte_sizes import bytes_of
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest.sources import STDIN, cache_dir
from stepscope.viewer.ingest.unpack import plain_copies, remove_plain_copy

INDEX_SUFFIX, KEPT_SUFFIX = ".duckdb", ".findings"
BUILDING = ".building-"
SPILL = "spill-"
BOUND_VARIABLE = "STEPSCOPE_INDEX_BYTES"
"""Variable with the maximum size in bytes of all indexes and unpacked logs."""
_MOST_BYTES = 10 * 10**9
_NEW_NS = 3600 * 10**9
_ABANDONED_S = 86_400
"""Age at which the files of a process that was killed while writing are removed."""


def indexes_folder() -> Path:
    """Return the folder of indexes, created if missing. Raises OSError or StepscopeError if that is impossible."""
    folder = cache_dir() / "indexes"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def index_name(names: Sequence[str], key: str) -> str:
    """Return the file name of the index with this key for the trace of these names."""
    return f"{_trace_digest(names, key)}-{key[:24]}{INDEX_SUFFIX}"


def has_index(names: Sequence[str]) -> bool:
    """Return whether there is an index of this trace, which is usually current."""
    if STDIN in names:
        return False
    try:
        return any(indexes_folder().glob(f"{_trace_digest(names)}-*{INDEX_SUFFIX}"))
    except (OSError, StepscopeError):
        return False


def hold(path: Path) -> BinaryIO | None:
    """Open an index or an unpacked log, which is not removed until the file is closed; None if it does not exist."""
    try:
        file = path.open("rb")
    except OSError:
        return None
    if fcntl is not None:
        with suppress(OSError):  # the file system has no locks
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return file


def kept_file(index: Path) -> Path | None:
    """Return the file for the findings in an index of the cache folder, which is removed with it; else None."""
    return index.with_suffix(KEPT_SUFFIX) if index.suffix == INDEX_SUFFIX and index.exists() else None


def note_use(index: Path) -> None:
    """Mark the index as used now."""
    with suppress(OSError):
        os.utime(index)


def make_room(index: Path) -> None:
    """Remove earlier indexes of the trace of `index`; if the folder is too large, also the least recently used indexes
    and unpacked logs."""
    trace, most = index.name.partition("-")[0], most_bytes()
    found = [(stat.st_mtime_ns, stat.st_size, path) for path, stat in _files(index.parent.glob(f"*{INDEX_SUFFIX}"))]
    found += [(stat.st_atime_ns, stat.st_size, path) for path, stat in _files(plain_copies())]
    total = sum(size for _, size, _ in found)
    for used_ns, size, path in sorted(found):
        is_earlier = path.name.startswith(f"{trace}-")
        # A log that was unpacked recently may be about to be opened.
        is_new = path == index or (path.suffix != INDEX_SUFFIX and time.time_ns() - used_ns < _NEW_NS)
        if not is_new and (is_earlier or total > most) and _remove_unused(path):
            total -= size
    _remove_abandoned(index.parent)


def most_bytes() -> int:
    """Return the maximum size in bytes of all indexes and unpacked logs.

    Raises StepscopeError if the variable is not a size.
    """
    text = os.environ.get(BOUND_VARIABLE, "").strip()
    if not text:
        return _MOST_BYTES
    size = bytes_of(text)
    if size is None:
        raise StepscopeError(f"{BOUND_VARIABLE} is {text!r}: give a number of bytes, or a size such as 500M or 20G.")
    return size


def spill_folder() -> str:
    """Return the path of a folder into which a connection may spill, or "" if there can be none."""
    try:
        return str(indexes_folder() / f"{SPILL}{os.getpid()}-{os.urandom(6).hex()}")
    except (OSError, StepscopeError):
        return ""


def _trace_digest(names: Sequence[str], key: str = "") -> str:
    """Return a digest of the names of a trace; for standard input the key represents the content."""
    paths = [key if name == STDIN else os.path.abspath(name) for name in names]
    return hashlib.sha256("\0".join(paths).encode("utf-8", "surrogateescape")).hexdigest()[:24]


def _files(paths: Iterable[Path]) -> Iterator[tuple[Path, os.stat_result]]:
    return ((path, stat) for path in paths if (stat := _stat(path)) is not None)


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _remove_unused(path: Path) -> bool:
    """Remove an index or an unpacked log unless a process has it open. Return whether it was removed."""
    try:
        with path.open("rb") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.suffix == INDEX_SUFFIX:
                path.with_suffix(KEPT_SUFFIX).unlink(missing_ok=True)
                path.unlink()
            else:
                remove_plain_copy(path)
    except OSError:
        return False
    return True


def _remove_abandoned(folder: Path) -> None:
    for pattern in (f"{BUILDING}*", f"{SPILL}*"):
        for path in folder.glob(pattern):
            stat = _stat(path)
            if stat is not None and time.time() - stat.st_mtime > _ABANDONED_S:
                shutil.rmtree(path, ignore_errors=True)


_SHARED_MEMORY = "/dev/shm"


class TemporaryFolder(tempfile.TemporaryDirectory[str]):
    def close(self) -> None:
        self.cleanup()


def temporary_folders() -> Iterator[TemporaryFolder]:
    """Yield private folders, each of which is removed when it is closed, where one can be created."""
    for place in (tempfile.gettempdir, lambda: _SHARED_MEMORY):
        try:
            folder = TemporaryFolder(dir=place(), prefix="stepscope-", ignore_cleanup_errors=True)
        except OSError:
            continue
        yield folder
