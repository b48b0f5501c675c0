"""The run record of a log, which may be damaged, missing or of a newer format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stepscope.tracer.schema.constants import FORMAT_VERSION
from stepscope.tracer.schema.records import Run
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest.bounds import whole_number
from stepscope.viewer.ingest.decode import legible
from stepscope.viewer.ingest.sources import OWN_LOGS


class NewerFormat(StepscopeError):
    """Raised for a log of a newer format than this version of stepscope reads."""

    def __init__(self, path: Path, version: int) -> None:
        self.path, self.version = path, version
        self.reason = (
            f"this log has format version {version}, this stepscope reads up to {FORMAT_VERSION}: upgrade stepscope"
        )
        super().__init__(f"{path}: {self.reason}.")

    def __reduce__(self) -> tuple[type[NewerFormat], tuple[Path, int]]:
        """Support pickling: workers pass the error to another process."""
        return NewerFormat, (self.path, self.version)


class RunFacts:
    """The readable parts of the first readable run record of a log."""

    def __init__(self, path: Path) -> None:
        self.is_ours = path.name.startswith(OWN_LOGS)
        """Whether stepscope wrote the log, even if the run record is damaged."""
        self.said: Mapping[str, Any] = {}
        """Fields of the record."""
        self.is_whole = False
        """Whether all fields could be read."""
        self._path = path
        self._ended: tuple[int, int] | None = None

    def begin(self, payload: Any) -> None:
        """Read a run record as far as possible. Raises NewerFormat."""
        version = whole_number(payload.get("format_version")) if isinstance(payload, dict) else None
        if version is not None and version > FORMAT_VERSION:
            raise NewerFormat(self._path, version)
        self.said = self.said or legible(Run, payload)

    def take(self, run: Run, payload: Mapping[str, Any]) -> None:
        """Set all fields from a complete record; `payload` may have more."""
        if not self.is_whole:
            self.said, self.is_whole = {**payload, **vars(run)}, True

    def end(self, monotonic_ns: int, unix_ns: int | None) -> None:
        """Set the clocks at the end of the run."""
        self._ended = (monotonic_ns, unix_ns) if unix_ns is not None else None

    def clocks(self) -> tuple[int, int] | None:
        """Return monotonic and unix ns of one moment, at the begin or else at the end of the run; None if unknown."""
        monotonic_ns, unix_ns = self.said.get("monotonic_ns"), self.said.get("unix_ns")
        return self._ended if monotonic_ns is None or unix_ns is None else (monotonic_ns, unix_ns)
