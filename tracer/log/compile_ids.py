"""Adds the ids of the compile to the headers of stepscope's records, as torch does for its own records.

Readers of such logs group records by these ids (torch/_logging/_internal.py, `trace_structured`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepscope.tracer.schema.graphs import Graph
from stepscope.tracer.schema.records import Record

KEYS = ("compiled_autograd_id", "frame_id", "frame_compile_id", "attempt")
Ids = Mapping[str, Any]
NONE: Ids = {}


class CompileEnvelopes:
    """Learns the ids from torch's records. A graph keeps the ids of its load, since torch may restart its counts."""

    def __init__(self) -> None:
        self._of_compile: dict[str, Ids] = {}
        self._of_graph: dict[int, Ids] = {}

    def note(self, metadata: Mapping[str, Any]) -> None:
        """Remember the ids in the metadata of a record of torch's; the last attempt of a compile counts."""
        ids = {key: metadata[key] for key in KEYS if metadata.get(key) is not None}
        if "frame_id" in ids or "compiled_autograd_id" in ids:
            self._of_compile[_text(ids)] = ids

    def of(self, record: Record) -> Ids:
        """Return the ids for the header of `record`; empty if it belongs to no compile, or to several."""
        graph = getattr(record, "graph", None)
        if isinstance(record, Graph) and record.compile_id is not None:
            self._of_graph.setdefault(record.graph, self._of_compile.get(record.compile_id, NONE))
        if graph is not None:
            return self._of_graph.get(graph, NONE)
        return self._of_compile.get(getattr(record, "compile_id", None) or "", NONE)


def _text(ids: Ids) -> str:
    """Return the compile id as torch writes it: ``0/0``, ``!1/0/0``, ``!1``."""
    frame = f"{ids['frame_id']}/{ids.get('frame_compile_id')}" if "frame_id" in ids else ""
    if "compiled_autograd_id" not in ids:
        return frame
    return f"!{ids['compiled_autograd_id']}" + (f"/{frame}" if frame else "")
