"""Views of a compile's input tensors: their metadata, storages and sources."""

from __future__ import annotations

from typing import Any

from stepscope.viewer.records.rows import Block, Cell, Column, Fact, FactsView, NoteView, TableView
from stepscope.viewer.records.views.measures import NOT_SAID, value_of
from stepscope.viewer.records.views.record import LoggedRecord, Sibling
from stepscope.viewer.records.views.shape import as_dict, shown

_SIMPLE = {"dtype": "dtype", "size": "size", "stride": "stride", "device": "device", "layout": "layout",
           "storage_offset": "storage offset", "ndim": "dimensions"}  # fmt: skip
_MOST = 200


def tensor(record: LoggedRecord) -> list[Block]:
    metadata = as_dict(record.metadata)
    facts = [Fact(label, _simple(metadata.get(name))) for name, label in _SIMPLE.items() if name in metadata]
    flags = [name.removeprefix("is_").replace("_", " ") for name, value in metadata.items() if value is True]
    facts.append(Fact("is", Cell(", ".join(flags) or None, "no property is set")))
    facts += _sources(record, metadata.get("id"))
    storage = _find(record, "describe_storage", metadata.get("storage"))
    if "storage" in metadata:
        size = storage.metadata.get("size") if storage is not None else None
        text = f"storage {shown(metadata['storage'])}"
        said = value_of("size_bytes", size).text
        facts.append(Fact("stored in", Cell(f"{text}, {said}" if said else text, href=_href(storage))))
    base = metadata.get("base")
    if base is not None:
        facts.append(
            Fact("is a view of", Cell(f"tensor {shown(base)}", href=_href(_find(record, "describe_tensor", base))))
        )
    shown_already = {*_SIMPLE, "storage", "id", "describer_id", "base"}
    others = [
        Fact(name, Cell(shown(item), mono=True))
        for name, item in metadata.items()
        if name not in shown_already and not isinstance(item, bool) and item not in ({}, [], None)
    ]
    return [FactsView(facts), *([FactsView(others, "Other fields")] if others else [])]


def _simple(item: Any) -> Cell:
    text = shown(item)
    if text.startswith("device(type='"):
        text = (
            text.removeprefix("device(").removesuffix(")").replace("type=", "").replace("index=", "").replace("'", "")
        )
        text = text.replace(", ", ":")
    return Cell(text.replace(",", ", ") if isinstance(item, list) else text, mono=True)


def storage(record: LoggedRecord) -> list[Block]:
    metadata = as_dict(record.metadata)
    facts = FactsView(
        [Fact("storage", Cell(shown(metadata.get("id")))), Fact("size", value_of("size_bytes", metadata.get("size")))]
    )
    inside = [
        other
        for other in _same_describer(record, "describe_tensor")
        if other.metadata.get("storage") == metadata.get("id")
    ]
    if not inside:
        return [facts, NoteView("No record of this compile describes a tensor in it.")]
    columns = [Column("tensor"), Column("dtype"), Column("size"), Column("stride"), Column("comes from")]
    rows = [
        [
            Cell(f"tensor {shown(other.metadata.get('id'))}", href=_href(other)),
            *(_simple(other.metadata.get(name)) for name in ("dtype", "size", "stride")),
            next((fact.value for fact in _sources(record, other.metadata.get("id"))), Cell(None, NOT_SAID)),
        ]
        for other in inside[:_MOST]
    ]
    return [facts, TableView(columns, rows, "Tensors in it", max(0, len(inside) - _MOST))]


def source(record: LoggedRecord) -> list[Block]:
    metadata = as_dict(record.metadata)
    described = _find(record, "describe_tensor", metadata.get("id"))
    facts = [
        Fact("source", Cell(shown(metadata.get("source")), mono=True)),
        Fact("is", Cell(f"tensor {shown(metadata.get('id'))}", href=_href(described))),
    ]
    if described is not None:
        facts += [Fact(name, _simple(described.metadata.get(name))) for name in ("dtype", "size", "stride", "device")]
    return [FactsView(facts)]


def _sources(record: LoggedRecord, number: Any) -> list[Fact]:
    found = [other for other in _same_describer(record, "describe_source") if other.metadata.get("id") == number]
    return [Fact("comes from", Cell(shown(o.metadata.get("source")), mono=True, href=_href(o))) for o in found[:20]]


def _find(record: LoggedRecord, event: str, number: Any) -> Sibling | None:
    found = (other for other in _same_describer(record, event) if other.metadata.get("id") == number)
    return next(found, None) if number is not None else None


def _same_describer(record: LoggedRecord, event: str) -> list[Sibling]:
    """Return the siblings with the same describer as the record, because each describer has its own ids."""
    describer = as_dict(record.metadata).get("describer_id")
    return [
        other
        for other in record.around.siblings
        if other.event == event and isinstance(other.metadata, dict) and other.metadata.get("describer_id") == describer
    ]


def _href(sibling: Sibling | None) -> str | None:
    return None if sibling is None else f"/records/{sibling.record}"
