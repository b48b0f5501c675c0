"""The run record of a log, which may be damaged, missing or of a newer format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stepscope.tracer.schema.records import FORMAT_VERSION, Run
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest.bounds import whole_number
from stepscope.viewer.ingest.decode import legible
from stepscope.viewer.ingest.sources import OWN_LOGS


class NewerFormat(StepscopeError):
    """A log of a newer format than this stepscope reads."""

    def __init__(self, path: Path, version: int) -> None:
        self.path, self.version = path, version
        self.reason = (
            f"this log has format version {version}, this stepscope reads up to {FORMAT_VERSION}: upgrade stepscope"
        )
        super().__init__(f"{path}: {self.reason}.")

    def __reduce__(self) -> tuple[type[NewerFormat], tuple[Path, int]]:
        """A worker hands it on to another process."""
        return NewerFormat, (self.path, self.version)


class RunFacts:
    """The first run record of a log that can be read, as far as it can be."""

    def __init__(self, path: Path) -> None:
        self.is_ours = path.name.startswith(OWN_LOGS)
        """stepscope wrote the log, whatever became of its run record."""
        self.said: Mapping[str, Any] = {}
        """Fields of the record."""
        self.is_whole = False
        """All of them can be read."""
        self._path = path
        self._ended: tuple[int, int] | None = None

    def begin(self, payload: Any) -> None:
        """Take what can be read of a run record. Raises NewerFormat."""
        version = whole_number(payload.get("format_version")) if isinstance(payload, dict) else None
        if version is not None and version > FORMAT_VERSION:
            raise NewerFormat(self._path, version)
        self.said = self.said or legible(Run, payload)

    def take(self, run: Run, payload: Mapping[str, Any]) -> None:
        """It is whole; `payload` may hold more."""
        if not self.is_whole:
            self.said, self.is_whole = {**payload, **vars(run)}, True

    def end(self, monotonic_ns: int, unix_ns: int | None) -> None:
        """The clocks at the end of the run."""
        self._ended = (monotonic_ns, unix_ns) if unix_ns is not None else None

    def clocks(self) -> tuple[int, int] | None:
        """Monotonic and unix ns of one moment: the begin, else the end; None: the log says neither."""
        monotonic_ns, unix_ns = self.said.get("monotonic_ns"), self.said.get("unix_ns")
        return self._ended if monotonic_ns is None or unix_ns is None else (monotonic_ns, unix_ns)
