"""Every kind of record that PyTorch 2.6 to 2.13 and vLLM write: what it is, and what makes it readable."""

from __future__ import annotations

from collections.abc import Mapping

from viewer.views import guard_views
from viewer.views.record import Kind, raw

EVENTS: Mapping[str, Kind] = {**guard_views.EVENTS}
ARTIFACTS: Mapping[str, Kind] = {}
_UNKNOWN = Kind("Unknown record", "No view of stepscope knows records of this kind; this is what the log holds.", raw)
UNKNOWN = Kind(_UNKNOWN.title, _UNKNOWN.says, raw, known=False)


def kind_of(event: str, name: str | None) -> Kind:
    """How records of an event, or artifacts of a name, are read."""
    if event == "artifact":
        return ARTIFACTS.get(name or "", UNKNOWN)
    return EVENTS.get(event, UNKNOWN)
