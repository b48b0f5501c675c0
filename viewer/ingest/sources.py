"""Finds the logs of a TRACE argument: a file, also compressed as `.gz` or `.zst`, a folder, several of them, or `-`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from stepscope.tracer.schema.log_format import HEADER
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest.line_prefixes import before_record, launcher_problem, prefix_of
from stepscope.viewer.ingest.other_files import what_it_is
from stepscope.viewer.ingest.recorder.ring_beside import ring_beside
from stepscope.viewer.ingest.report_logs import is_report, packed_logs
from stepscope.viewer.ingest.unpack import (
    PACKED_ERRORS,
    cache_dir,
    copy_without_prefixes,
    packed_form,
    unpack,
    unpack_file,
    unpack_stream,
)

__all__ = ["STDIN", "Source", "TracePath", "cache_dir", "find_logs", "shown", "trace_names"]

STDIN = "-"
OWN_LOGS = "stepscope_trace_"
LOG_PREFIXES = (OWN_LOGS, "dedicated_log_torch_trace_")
LOG_SUFFIXES = (".log", ".txt", ".log.gz", ".txt.gz", ".log.zst", ".txt.zst")
MOST_LOGS = 1024
DEEPEST_FOLDER = 6
_MOST_OTHERS = 50
"""Maximum number of files that are examined in a folder without a log."""
_HEAD_BYTES = 1 << 16

TracePath = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""Name of a trace: a log, a folder of logs, `-`, or several of them."""


@dataclass(frozen=True)
class Source:
    """A log: the path that the user gave, and the file of its plain bytes, which is a copy if the log is compressed."""

    path: Path
    data_path: Path
    size: int
    mtime_ns: int
    problems: list[tuple[str, str]] = field(default_factory=list)
    """(reason, text) of each problem found before the records are read."""
    ring: bytes | None = field(default=None, repr=False)
    """Bytes of the launch ring beside the log; None if there is none."""


class NoSuchLog(StepscopeError):
    """Raised for a name that is neither a file nor a folder."""


def find_logs(trace: TracePath) -> list[Source]:
    """Find the logs of `trace`, each once: those of a folder sorted by path, those of several names in their order.

    Raises StepscopeError if a name does not exist or has no log.
    """
    names = trace_names(trace)
    sources = _one(names[0]) if len(names) == 1 else _several(names)
    if all(source.size == 0 for source in sources):
        raise StepscopeError(f"All logs in {shown(names)} are empty: did the recorded program compile anything?")
    return sources


def trace_names(trace: TracePath) -> list[str]:
    """Return the names in `trace` without repetitions. Raises StepscopeError if there are none."""
    names = [trace] if isinstance(trace, (str, os.PathLike)) else list(trace)
    if not names:
        raise StepscopeError("No log was given: give a log, a folder of logs, or - for stdin.")
    return list(dict.fromkeys(os.fspath(name) for name in names))


def shown(names: Sequence[str]) -> str:
    """Return the names of a trace as a part of a sentence."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _one(name: str) -> list[Source]:
    if name == STDIN:
        return [keep_stdin()]
    path = _existing(name)
    if path.is_fifo():
        with path.open("rb") as pipe:
            return [_from_pipe(path, pipe, name)]
    if path.is_dir():
        return list(_in_folder(path, name))
    return _in_report(path) if _is_report(path) else [_only_log(path)]


def _several(names: Sequence[str]) -> list[Source]:
    """Find the logs of several names. As in a folder, one that cannot be read becomes a problem of the trace."""
    sources: dict[str, Source] = {}
    for path, name in [(_existing(name), name) for name in names]:
        if name == STDIN:
            found: Iterable[Source] = [keep_stdin()]
        else:
            found = _in_folder(path, name) if path.is_dir() else _in_report(path) if _is_report(path) else _source(path)
        for source in found:
            sources.setdefault(os.path.realpath(source.path), source)
    logs = list(sources.values())
    if any(source.size for source in logs) and not any(_has_record(source.data_path, whole=True) for source in logs):
        raise StepscopeError(f"{shown(names)}: none of these is a log with a record of stepscope or TORCH_TRACE.")
    return logs


def _existing(name: str) -> Path:
    path = Path(name).absolute()
    if name != STDIN and not path.exists():
        raise NoSuchLog(f"There is no file or folder {name}: give a log, a folder of logs, or - for stdin.")
    return path


def _in_folder(folder: Path, name: str) -> Iterator[Source]:
    found: dict[str, Path] = {}
    for path in sorted(_logs_in(folder)):
        found.setdefault(os.path.realpath(path), path)
    paths = list(found.values())
    if not paths:
        raise StepscopeError(
            _others_in(folder, name)
            or f"The folder {name} contains no log: record one with `stepscope run` or with TORCH_TRACE={name}."
        )
    *first, last = (source for path in paths[:MOST_LOGS] for source in _source(path))
    yield from first
    left_out = len(paths) - MOST_LOGS
    if left_out > 0:
        text = f"{left_out:,} more logs are in this folder and are not read: `stepscope ingest` reads them all"
        last = replace(last, problems=[*last.problems, ("too_many_logs", text)])
    yield last


def _is_report(path: Path) -> bool:
    try:
        with _open(path) as file:
            return is_report(file.read(_HEAD_BYTES))
    except (*PACKED_ERRORS, OSError):
        return False


def _in_report(path: Path) -> list[Source]:
    """Unpack the logs in a report to the cache folder. Raises StepscopeError if it has none."""
    found = []
    for log in packed_logs(path):
        plain_copy, problems = unpack_stream(BytesIO(log.packed))
        ring = None
        if log.packed_ring is not None:
            unpack(BytesIO(log.packed_ring), plain_ring := BytesIO())
            ring = plain_ring.getvalue()
        size, mtime_ns = plain_copy.stat().st_size, path.stat().st_mtime_ns
        found.append(Source(path / log.name, plain_copy, size, mtime_ns, problems, ring))
    return found


def _only_log(path: Path) -> Source:
    source = next(_source(path))
    if source.problems and source.problems[0][0] == "not_read":
        raise StepscopeError(f"{path} cannot be read ({source.problems[0][1]}): check the file and its permissions.")
    if source.size == 0 and source.problems:
        raise StepscopeError(f"{path} contains nothing that can be read: {source.problems[0][1]}.")
    if source.size == 0:
        raise StepscopeError(f"{path} is empty: did the recorded program compile anything?")
    if not _has_record(source.data_path, whole=True):
        raise StepscopeError(f"{path} is not a log: {_what(source.data_path, path.name)}.")
    return source


def _others_in(folder: Path, name: str) -> str | None:
    """Return a sentence about the first file of another tool in the folder, or None."""
    for path in sorted(folder.iterdir())[:_MOST_OTHERS]:
        try:
            known = _what(path, path.name) if path.is_file() else ""
        except (*PACKED_ERRORS, OSError):
            continue
        if known.startswith("it is "):
            return f"The folder {name} contains no log; {path.name} is {known.removeprefix('it is ')}."
    return None


def _what(path: Path, name: str) -> str:
    with _open(path) as file:
        known = what_it_is(file.read(_HEAD_BYTES), name)
    return f"it is {known}" if known else "it contains no record of stepscope or TORCH_TRACE"


def _logs_in(folder: Path) -> Iterator[Path]:
    for here, folders, names in os.walk(folder):
        depth = len(Path(here).relative_to(folder).parts)
        folders[:] = sorted(name for name in folders if not name.startswith(".") and depth < DEEPEST_FOLDER)
        for name in sorted(names):
            path = Path(here, name)
            if not name.endswith(LOG_SUFFIXES) or not path.is_file():
                continue
            if name.startswith(LOG_PREFIXES) or _has_record(path, whole=False):
                yield path


def _has_record(path: Path, whole: bool) -> bool:
    """Return whether a record begins in the file; only its first bytes are searched unless `whole` is true."""
    try:
        with _open(path) as file:
            while piece := file.read(_HEAD_BYTES):
                piece += file.readline()
                if any(HEADER.match(line) for line in piece.removeprefix(b"\xef\xbb\xbf").split(b"\n")):
                    return True
                if not whole:
                    return before_record(piece) is not None
    except PACKED_ERRORS:
        pass
    return False


def _open(path: Path) -> BinaryIO:
    form = packed_form(path)
    return form.open(path) if form else path.open("rb")


def _source(path: Path) -> Iterator[Source]:
    """Yield the log at `path`; if it cannot be read, it has size 0 and a problem."""
    try:
        stat = path.stat()
        data_path, problems = unpack_file(path, stat) if packed_form(path) else (path, [])
        size = stat.st_size if data_path is path else data_path.stat().st_size
        yield _as_written(Source(path, data_path, size, stat.st_mtime_ns, problems, ring_beside(path)), stat)
    except OSError as error:
        yield Source(path, path, 0, 0, [("not_read", error.strerror or str(error))])


def _as_written(source: Source, stat: os.stat_result) -> Source:
    """Return the log without the prefixes of a launcher."""
    prefix = prefix_of(source.data_path)
    if prefix is None:
        return source
    plain_copy = copy_without_prefixes(prefix, source.data_path, stat)
    problems = [*source.problems, launcher_problem(prefix)]
    return replace(source, data_path=plain_copy, size=plain_copy.stat().st_size, problems=problems)


def keep_stdin() -> Source:
    """Copy the log on standard input to the cache folder. Raises StepscopeError if there is none."""
    if sys.stdin is None or sys.stdin.isatty():
        raise StepscopeError("Standard input contains no log: pipe a log into it, e.g. `ssh host cat LOG | ...`.")
    return _from_pipe(Path("<stdin>"), sys.stdin.buffer, "Standard input")


def _from_pipe(path: Path, pipe: BinaryIO, name: str) -> Source:
    """Copy the log in `pipe` to the cache folder. Raises StepscopeError if it has no record."""
    try:
        plain_copy, problems = unpack_stream(pipe)
    except OSError as error:
        raise StepscopeError(f"{name} cannot be kept in {cache_dir()}: {error.strerror or error}.") from None
    stat = plain_copy.stat()
    source = _as_written(Source(path, plain_copy, stat.st_size, stat.st_mtime_ns, problems), stat)
    if source.size == 0 or not _has_record(source.data_path, whole=True):
        plain_copy.unlink()
        raise StepscopeError(f"{name} contains no log: it has no record of stepscope or TORCH_TRACE.")
    return source
