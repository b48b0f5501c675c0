"""What all records of a log have in common."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any, ClassVar

from stepscope.tracer.schema.constants import ARTIFACT_PREFIX


@dataclass(frozen=True)
class Record:
    """A kind of record. Its subclasses are frozen dataclasses, whose fields are the JSON payload."""

    KIND: ClassVar[str]
    """Its name in the log after ``stepscope_``."""
    TABLE: ClassVar[str | None] = None
    """Table of the index in which each record becomes a row: `log`, `time_unix_ns` of the record's line, and a column
    for each field. It is None if the viewer combines the record with others."""


def records_of(module: ModuleType) -> list[type[Record]]:
    """Return the kinds of records that `module` defines, in their order there."""
    classes = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Record)]
    return [kind for kind in classes if kind.__module__ == module.__name__]


def artifact_name(record: Record | type[Record]) -> str:
    return ARTIFACT_PREFIX + record.KIND


def to_payload(record: Record) -> dict[str, Any]:
    """Return the JSON payload of `record`."""
    return asdict(record)
