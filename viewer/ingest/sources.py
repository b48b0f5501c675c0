"""A TRACE argument -> the logs it means: a file, a `.gz` of one, a folder of them, or `-` for standard input."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, BinaryIO, cast

from tracer.log_format import HEADER
from viewer.errors import StepscopeError

STDIN = "-"
LOG_PREFIXES = ("stepscope_trace_", "dedicated_log_torch_trace_")
LOG_SUFFIXES = (".log", ".txt", ".log.gz", ".txt.gz")
MOST_LOGS = 1024
DEEPEST_FOLDER = 6
_HEAD_BYTES = 1 << 16
_COPY_BYTES = 1 << 20
_GZIP = 16 + zlib.MAX_WBITS


@dataclass(frozen=True)
class Source:
    """One log: the path the user knows it by, and the plain bytes (the same file, or a spool of a .gz or stdin)."""

    path: Path
    data_path: Path
    size: int
    mtime_ns: int
    problems: list[tuple[str, str]] = field(default_factory=list)
    """(reason, text) of what was wrong before a byte was read."""


def cache_dir() -> Path:
    """Where indexes and spools go that cannot lie beside their log. Made when missing."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    for folder in (base / "stepscope", Path(tempfile.gettempdir()) / f"stepscope-{_user()}"):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    raise StepscopeError("No folder to keep an index in: set XDG_CACHE_HOME to a folder you can write to.")


def find_logs(trace: str | os.PathLike[str]) -> list[Source]:
    """The logs of `trace`, sorted by path.

    Raises StepscopeError when there is nothing of that name, or no log in it.
    """
    if str(trace) == STDIN:
        return [_spool_stdin()]
    path = Path(trace).absolute()
    if not path.exists():
        raise StepscopeError(f"There is no file or folder {trace}: give a log, a folder of logs, or - for stdin.")
    if not path.is_dir():
        return [_only_log(path)]
    paths = list(_logs_in(path))
    if not paths:
        raise StepscopeError(
            f"The folder {trace} holds no log: record one with `stepscope run` or with TORCH_TRACE={trace}."
        )
    sources = [source for log in sorted(paths) for source in _source(log)]
    if all(source.size == 0 for source in sources):
        raise StepscopeError(f"All logs in {trace} are empty: did the recorded program compile anything?")
    return sources


def _only_log(path: Path) -> Source:
    source = next(_source(path))
    if source.problems and source.problems[0][0] == "not_read":
        raise StepscopeError(f"{path} cannot be read ({source.problems[0][1]}): check the file and its permissions.")
    if source.size == 0:
        raise StepscopeError(f"{path} is empty: did the recorded program compile anything?")
    if not _has_record(source.data_path, whole=True):
        raise StepscopeError(f"{path} is not a log: it holds no record of stepscope or TORCH_TRACE.")
    return source


def _logs_in(folder: Path) -> Iterator[Path]:
    found = 0
    for here, folders, names in os.walk(folder):
        depth = len(Path(here).relative_to(folder).parts)
        folders[:] = sorted(name for name in folders if not name.startswith(".") and depth < DEEPEST_FOLDER)
        for name in sorted(names):
            path = Path(here, name)
            if not name.endswith(LOG_SUFFIXES) or not path.is_file():
                continue
            if name.startswith(LOG_PREFIXES) or _has_record(path, whole=False):
                yield path
                found += 1
                if found == MOST_LOGS:
                    return


def _has_record(path: Path, whole: bool) -> bool:
    """A line of the file (of its first bytes unless `whole`) begins a record."""
    try:
        with _open(path) as file:
            while piece := file.read(_HEAD_BYTES):
                piece += file.readline()
                if any(HEADER.match(line) for line in piece.removeprefix(b"\xef\xbb\xbf").split(b"\n")):
                    return True
                if not whole:
                    return False
    except (OSError, EOFError, zlib.error):
        pass
    return False


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path, "rb")) if _is_gz(path) else path.open("rb")


def _is_gz(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _source(path: Path) -> Iterator[Source]:
    """The log at `path`; one of size 0 with a problem when it cannot be read."""
    try:
        stat = path.stat()
        if _is_gz(path):
            data_path, problems = _spool_gz(path, stat)
            yield Source(path, data_path, data_path.stat().st_size, stat.st_mtime_ns, problems)
            return
        yield Source(path, path, stat.st_size, stat.st_mtime_ns)
    except OSError as error:
        yield Source(path, path, 0, 0, [("not_read", error.strerror or str(error))])


def _spool_gz(path: Path, stat: os.stat_result) -> tuple[Path, list[tuple[str, str]]]:
    """The uncompressed bytes of `path`, kept in the cache folder; a cut or broken .gz gives what it still holds."""
    key = hashlib.sha256(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}".encode("utf-8", "surrogateescape"))
    spool = _spool_folder() / f"{key.hexdigest()[:32]}.log"
    broken = spool.with_suffix(".broken")
    if not spool.exists():
        with path.open("rb") as file, tempfile.NamedTemporaryFile(dir=spool.parent, delete=False) as out:
            problem = _decompress(file, out)
        if problem:
            broken.write_text(problem)
        os.replace(out.name, spool)
    return spool, [("truncated", broken.read_text())] if broken.exists() else []


def _decompress(file: BinaryIO, out: IO[bytes]) -> str | None:
    """Write what a .gz holds, also one that is cut or broken; says what was wrong with it."""
    stream = zlib.decompressobj(_GZIP)
    while piece := file.read(_HEAD_BYTES):
        while piece.strip(b"\0"):
            if stream.eof:
                stream = zlib.decompressobj(_GZIP)
            try:
                out.write(stream.decompress(piece, _COPY_BYTES))
            except zlib.error as error:
                return f"the .gz is broken: {error}"
            piece = stream.unconsumed_tail or stream.unused_data
    return None if stream.eof else "the .gz ends too early"


def _spool_stdin() -> Source:
    if sys.stdin is None or sys.stdin.isatty():
        raise StepscopeError("Nothing comes on standard input: pipe a log into it, e.g. `ssh host cat LOG | ...`.")
    with tempfile.NamedTemporaryFile(dir=_spool_folder(), suffix=".log", prefix="stdin_", delete=False) as out:
        shutil.copyfileobj(sys.stdin.buffer, out, _COPY_BYTES)
    source = next(_source(Path(out.name)))
    if source.size == 0 or not _has_record(source.data_path, whole=True):
        os.unlink(out.name)
        raise StepscopeError("Standard input holds no log: it has no record of stepscope or TORCH_TRACE.")
    return Source(Path("<stdin>"), source.data_path, source.size, source.mtime_ns)


def _spool_folder() -> Path:
    folder = cache_dir() / "spool"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _user() -> str:
    return str(os.getuid()) if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
