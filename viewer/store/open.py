"""Opens a trace: finds its index, or builds it where one can be written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest.rows import IndexRows, without_collection
from stepscope.viewer.ingest.sources import Source, TracePath, find_logs, trace_names
from stepscope.viewer.store.cache_folder import (
    hold,
    index_name,
    indexes_folder,
    make_room,
    most_bytes,
    temporary_folders,
)
from stepscope.viewer.store.index import OpenIndex, build_in_memory, build_index, index_key, open_index
from stepscope.viewer.store.parquet.store_marker import means_store
from stepscope.viewer.store.trace import IN_MEMORY, Closeable, Trace


def open_trace(path: TracePath, *, index_dir: str | os.PathLike[str] | None = None) -> Trace:
    """Open the trace at `path`: a log, also compressed as `.gz` or `.zst`, a folder of logs, `-` for standard input,
    several of these, or a STORE.

    The index is in `index_dir`, else in the user's cache folder, and never beside a log. If that cannot be written, it
    is in a temporary folder or in memory. A current index is used; otherwise one is built. Raises StepscopeError if
    there is no log, or only one of a newer format.
    """
    if means_store(trace_names(path)):
        from stepscope.viewer.store.parquet.views import open_store  # needs fsspec, which takes time to import

        return open_store(trace_names(path)[0])
    return open_logs(path, find_logs(path), index_dir=index_dir)


def open_logs(path: TracePath, sources: Sequence[Source], *, index_dir: str | os.PathLike[str] | None = None) -> Trace:
    """Open the logs of `path`, which were found already, like `open_trace`. Each is read up to its `size`."""
    return _Opening(sources, trace_names(path)).open(index_dir)


class _Opening:
    """Finds the best place for an index; the logs are read at most once."""

    def __init__(self, sources: Sequence[Source], names: Sequence[str]) -> None:
        self._sources, self._key = sources, index_key(sources)
        self._name = index_name(names, self._key)
        self._log_bytes = sum(source.size for source in sources)
        self._rows: IndexRows | None = None

    def open(self, index_dir: str | os.PathLike[str] | None) -> Trace:
        with without_collection():
            return self._in_folder(index_dir) or self._in_temporary_folder() or self._in_memory()

    def _in_folder(self, index_dir: str | os.PathLike[str] | None) -> Trace | None:
        """Open or build the index in the given folder or in the user's cache folder; None if that is impossible."""
        if index_dir is None:
            most_bytes()  # reports an invalid size before the logs are read
        try:
            index = (Path(index_dir).absolute() if index_dir is not None else indexes_folder()) / self._name
        except (OSError, StepscopeError):
            return None
        found = open_index(index, self._key) if _is_text(index) else None
        if found is None and (found := self._build(index)) is not None and index_dir is None:
            make_room(index)
        return None if found is None else self._trace(found, index)

    def _in_temporary_folder(self) -> Trace | None:
        for folder in temporary_folders():
            index = Path(folder.name, self._name)
            found = self._build(index)
            if found is not None:
                return self._trace(found, index, folder)
            folder.cleanup()
        return None

    def _in_memory(self) -> Trace:
        connection = build_in_memory(self._key, self._read(), self._log_bytes)
        return Trace(self._sources, connection, IN_MEMORY, self._plain_copies())

    def _build(self, index: Path) -> OpenIndex | None:
        if not _is_text(index):
            return None
        return build_index(index, self._key, self._read(), self._log_bytes)

    def _read(self) -> IndexRows:
        if self._rows is None:
            from stepscope.viewer.ingest import logs  # not needed to open an index that is there

            self._rows = logs.read_logs(self._sources)
        return self._rows

    def _trace(self, found: OpenIndex, index: Path, *held: Closeable) -> Trace:
        self._rows = None  # frees the rows before the next garbage collection
        kept = [found.held] if found.held is not None else []
        return Trace(self._sources, found.connection, index, [*kept, *self._plain_copies(), *held])

    def _plain_copies(self) -> list[BinaryIO]:
        """Protect the unpacked logs, from which payloads are read, while the trace is open."""
        unpacked = {source.data_path for source in self._sources if source.data_path != source.path}
        return [held for path in unpacked if (held := hold(path)) is not None]


def _is_text(path: Path) -> bool:
    """Return whether the path is UTF-8; DuckDB opens no others."""
    try:
        return bool(str(path).encode())
    except UnicodeEncodeError:
        return False
