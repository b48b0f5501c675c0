"""Makes the compile ids of one log unique. PyTorch counts from zero again after `torch._dynamo.reset()`, and each
process that writes to the log has its own count. Ids of a later count have a prefix, as in ``r1:0/0``."""

from __future__ import annotations

from dataclasses import replace

from stepscope.viewer.ingest.reader import LogRecord
from stepscope.viewer.ingest.record_headers import RecordHeader


class LogCompileIds:
    """Finds the compile of each record while the log is read."""

    def __init__(self) -> None:
        self.since: list[tuple[int, int | None, str]] = []
        """(record, process, prefix): ids of the process have the prefix from this record on."""
        self.changed = False
        """Whether a header that was read before may now belong to another compile."""
        self._prefixes: dict[int | None, str] = {}

    def prefix(self, pid: int | None) -> str:
        return self._prefixes.get(pid, "")

    def name(self, compile_id: str | None, record: LogRecord) -> str | None:
        """Return the unique id for the id that PyTorch wrote in `record`."""
        return self.prefix(record.pid) + compile_id if compile_id is not None else None

    def other_header(self, record: LogRecord) -> RecordHeader | None:
        """Return the record's header with the unique id, or None if it already has it."""
        header = record.header
        if header.compile_id is None:
            return None
        if header.pid not in self._prefixes:
            if self._prefixes:
                self.begin_anew(record)
            else:
                self._prefixes[header.pid] = ""
        prefix = self._prefixes[header.pid]
        return replace(header, compile_id=prefix + _bare(header.compile_id)) if prefix else None

    def begin_anew(self, record: LogRecord) -> str:
        """Begin a new count with `record` for its process, and return the prefix of its ids."""
        prefix = f"r{len(self.since) + 1}:"
        self._prefixes[record.pid] = prefix
        self.since.append((record.record, record.pid, prefix))
        self.changed = True
        return prefix


def _bare(compile_id: str) -> str:
    return compile_id.rpartition(":")[2]
