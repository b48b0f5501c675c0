"""The log of one recording, which begins with the run record and the graphs that a forked child has inherited."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stepscope.tracer.log.writer import LogWriter
from stepscope.tracer.schema.constants import OUTPUT_CODE
from stepscope.tracer.schema.graphs import Graph, Provenance
from stepscope.tracer.schema.process_ends import Frame
from stepscope.tracer.schema.record import Record
from stepscope.tracer.schema.records import Run

COMPILE_KEYS = ("compiled_autograd_id", "frame_id", "frame_compile_id", "attempt")
Ids = Mapping[str, Any]
_NONE: Ids = {}


class RunLog:
    """The log of this process, created at its first record; `stopped` is called once if writing it fails."""

    def __init__(
        self,
        directory: Path,
        rank: int | None,
        opening: Callable[[bool], tuple[Run, list[bytes]]],
        stopped: Callable[[OSError], None],
    ) -> None:
        """Create the log; `opening(forked)` returns the run record and torch's interned strings."""
        self._opening, self._stopped = opening, stopped
        self._folder = _absolute(directory)
        self.writer = LogWriter(self._folder, rank)
        self._lock = threading.RLock()
        self._compile_ids = CompileEnvelopes()
        self._forked = False
        self.has_begun = False
        self._has_stopped = False
        self._graphs: list[tuple[Graph, str | None]] = []
        self._about_graphs: list[Record] = []

    def begin(self) -> Path | None:
        """Write the run record, torch's interned strings, and the inherited graphs, unless they are written.

        Returns the path of the log, or None if it could not be created.
        """
        with self._lock:
            if not self.has_begun:
                self.has_begun = True
                run, strings = self._opening(self._forked)
                self.writer.write(run)
                for data in strings:
                    self.writer.write_bytes(data)
                for record, source in self._graphs:
                    self._write_graph(record, source)
                for about in self._about_graphs:
                    self._write(about)
                self._check()
        return self.writer.path if self.writer.failure is None else None

    def write(self, record: Record) -> None:
        self.begin()
        self._write(record)
        self._check()

    def write_torchs(self, data: bytes, metadata: Mapping[str, Any]) -> None:
        """Append one of torch's own records, encoded."""
        self.begin()
        self._compile_ids.note(metadata)
        self.writer.write_bytes(data)
        self._check()

    def graph(self, record: Graph, source: str | None) -> None:
        """Write a graph, with its `source` if torch does not log it. A forked child writes it again."""
        self.begin()
        self._graphs.append((record, source))
        self._write_graph(record, source)
        self._check()

    def describe_launch(self, graph: int, site: int) -> str:
        """Describe a launch for the user: ``extern_kernels.mm, line 77 of cab.py, from model.py:12``."""
        loaded = next((record for record, _ in self._graphs if record.graph == graph), None)
        launch = next((one for one in loaded.sites if one.site == site), None) if loaded is not None else None
        if loaded is None or launch is None:
            return f"launch site {site}"
        frame = self._model_frame(graph, site)
        source = f", from {os.path.basename(frame.file)}:{frame.line}" if frame is not None else ""
        return f"{launch.kernel}, line {launch.line} of {loaded.wrapper_key}.py{source}"

    def _model_frame(self, graph: int, site: int) -> Frame | None:
        """Return the line of the model's source that the launch comes from, or None if it is unknown."""
        for record in self._about_graphs:
            if isinstance(record, Provenance) and record.graph == graph:
                stacks = (stack for one in record.sites if one.site == site for stack in one.stacks if stack)
                return next((record.frames[stack[-1]] for stack in stacks), None)
        return None

    def about_graph(self, record: Record) -> None:
        """Write a record that each graph has once. A forked child writes it again."""
        self.write(record)
        self._about_graphs.append(record)

    def check_file(self) -> None:
        self.writer.check_file()
        self._check()

    def after_fork(self) -> None:
        self.writer.abandon()
        self.writer = LogWriter(self._folder, self.writer.rank)
        self._lock = threading.RLock()
        self.has_begun = self._has_stopped = False
        self._forked = True

    def close(self) -> bool:
        """Close the log; return whether everything was written."""
        self.writer.close()
        return self.writer.failure is None

    def _write(self, record: Record) -> None:
        self.writer.write(record, self._compile_ids.of(record))

    def _write_graph(self, record: Graph, source: str | None) -> None:
        self._write(record)
        if source is not None:
            self.writer.write_text(f"{OUTPUT_CODE}{record.graph}", source, self._compile_ids.of(record))

    def _check(self) -> None:
        if self.writer.failure is not None and not self._has_stopped:
            self._has_stopped = True
            self._stopped(self.writer.failure)


def _absolute(folder: Path) -> Path:
    """Return the absolute path, since the program may change its working directory before the first record."""
    try:
        return folder.absolute()
    except OSError:  # the working directory is gone
        return folder


def reason_of(error: OSError) -> str:
    """Return a short description of `error`."""
    return os.strerror(error.errno) if error.errno else str(error)


class CompileEnvelopes:
    """Adds the ids of the compile to the headers of stepscope's records, as torch does (torch/_logging/_internal.py).

    It learns the ids from torch's records. A graph keeps the ids of its load, since torch may restart its counts.
    """

    def __init__(self) -> None:
        self._of_compile: dict[str, Ids] = {}
        self._of_graph: dict[int, Ids] = {}

    def note(self, metadata: Mapping[str, Any]) -> None:
        """Remember the ids in the metadata of a record of torch's; the last attempt of a compile counts."""
        ids = {key: metadata[key] for key in COMPILE_KEYS if metadata.get(key) is not None}
        if "frame_id" in ids or "compiled_autograd_id" in ids:
            self._of_compile[_text(ids)] = ids

    def of(self, record: Record) -> Ids:
        """Return the ids for the header of `record`; empty if it belongs to no compile, or to several."""
        graph = getattr(record, "graph", None)
        if isinstance(record, Graph) and record.compile_id is not None:
            self._of_graph.setdefault(record.graph, self._of_compile.get(record.compile_id, _NONE))
        if graph is not None:
            return self._of_graph.get(graph, _NONE)
        return self._of_compile.get(getattr(record, "compile_id", None) or "", _NONE)


def _text(ids: Ids) -> str:
    """Return the compile id as torch writes it: ``0/0``, ``!1/0/0``, ``!1``."""
    frame = f"{ids['frame_id']}/{ids.get('frame_compile_id')}" if "frame_id" in ids else ""
    if "compiled_autograd_id" not in ids:
        return frame
    return f"!{ids['compiled_autograd_id']}" + (f"/{frame}" if frame else "")
