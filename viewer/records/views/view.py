"""Builds the readable view of a record with the function for its kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any

from stepscope.viewer.ingest.torch_trace.kinds import kind_of
from stepscope.viewer.records.rows import LONGEST_TEXT, Block, CodeView, NoteView, RecordView, TextView
from stepscope.viewer.records.views.record import Around, LoggedRecord, raw
from stepscope.viewer.records.views.shape import Odd


def view_of(
    event: str,
    name: str | None,
    encoding: str | None,
    metadata: Any,
    payload: str | None,
    around: Around | None = None,
) -> RecordView:
    """Return the view of a record; one that lacks the form of its kind is shown raw, with a remark."""
    kind = kind_of(event, name)
    record = LoggedRecord(event, name, encoding, metadata, payload, around or Around())
    try:
        blocks = reader_of(kind.view)(record)
    except Odd as odd:
        said = f"This record does not have the form that PyTorch gives its kind: {odd}. It is shown unchanged."
        blocks = [NoteView(said, warning=True), *raw(record)]
    return RecordView(kind.title, kind.says, [part for block in blocks for part in _bounded(block)], kind.known)


@cache
def reader_of(view: str) -> Callable[[LoggedRecord], list[Block]]:
    """Import and return the function that `RecordKind.view` names."""
    module, _, function = view.partition(".")
    reader: Callable[[LoggedRecord], list[Block]] = getattr(import_module(f"{__package__}.{module}"), function)
    return reader


def _bounded(block: Block) -> list[Block]:
    """Cut a block to a length that a browser can draw, with a remark if anything was cut."""
    if not isinstance(block, CodeView | TextView) or len(block.text) <= LONGEST_TEXT:
        return [block]
    return [
        replace(block, text=block.text[:LONGEST_TEXT]),
        NoteView("The text is truncated; the download contains all of it.", True),
    ]
