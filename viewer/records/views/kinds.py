"""From the name of a record to how it is read."""

from __future__ import annotations

from stepscope.tracer.schema.records import ARTIFACT_PREFIX
from stepscope.viewer.ingest.torch_trace.known_events import UNREADABLE
from stepscope.viewer.records.views.kinds_of_artifacts import artifact_kind
from stepscope.viewer.records.views.kinds_of_events import EVENTS
from stepscope.viewer.records.views.record import RecordKind, raw

UNKNOWN_EVENT = RecordKind(
    "Record of an unknown kind",
    "PyTorch 2.6 to 2.13 write no such event: a newer version, or another program, does. It is kept as it is.",
    raw,
    known=False,
)
UNKNOWN_ARTIFACT = RecordKind(
    "Artifact",
    "PyTorch 2.6 to 2.13 write no artifact of this name: a newer version or another program does. It is kept as it is.",
    raw,
    known=False,
)
UNREADABLE_EVENT = RecordKind(
    "Record that cannot be read", "The JSON of its header is broken; the page of problems says where.", raw, known=False
)


_OWN = RecordKind(
    "Record of stepscope",
    "Written by stepscope's recorder: what ran, and what it read; the other pages are made from these.",
    raw,
)


def kind_of(event: str, name: str | None) -> RecordKind:
    """How records of an event, or artifacts of a name, are read."""
    if event != "artifact":
        return EVENTS.get(event, UNREADABLE_EVENT if event == UNREADABLE else UNKNOWN_EVENT)
    if name is not None and name.startswith(ARTIFACT_PREFIX):
        return _OWN
    return (artifact_kind(name) if name is not None else None) or UNKNOWN_ARTIFACT
