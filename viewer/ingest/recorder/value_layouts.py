"""Joins the value layouts of a log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from stepscope.tracer.schema.values import OF_THE_CALL, ValueLayout
from stepscope.viewer.ingest.columns import Column, Ints, Texts
from stepscope.viewer.ingest.recorder.value_batch import UNKNOWN


class Layouts:
    """All layouts of a log, concatenated, and which launch of its site within a call each row belongs to."""

    def __init__(self, layouts: dict[int, ValueLayout], inputs: Mapping[int, list[str]]) -> None:
        chosen = list(layouts.values())
        self.number = {number: i for i, number in enumerate(layouts)}
        self.graph = np.array([layout.graph for layout in chosen], dtype=np.int64)
        self.length = np.array([len(layout.site) for layout in chosen], dtype=np.int64)
        self.first = [layout.first for layout in chosen]
        self.start = np.concatenate([[0], np.cumsum(self.length)])
        self.ints = {
            name: _joined(chosen, name, lambda column: np.array(column, dtype=np.int64))
            for name in ("site", "argument", "numel", "looked_at")
        }
        self.ints["occurrence"] = np.concatenate([_occurrences(layout) for layout in chosen] or [np.empty(0, np.int64)])
        self.item = _joined(chosen, "item", lambda column: np.array([UNKNOWN if i is None else i for i in column]))
        self.texts = {
            name: _texts(text for layout in chosen for text in getattr(layout, name))
            for name in ("moment", "part", "dtype", "skipped")
        }
        self.texts["input"] = _texts(
            name for layout in chosen for name in _input_names(layout, inputs.get(layout.graph, []))
        )
        self.is_input = self.ints["site"] == OF_THE_CALL
        self.is_after = np.equal(self.texts["moment"].plain(), "after").astype(bool)
        self.is_skipped = np.not_equal(self.texts["skipped"].plain(), np.array([None])).astype(bool)
        looked_at = self.ints["looked_at"]
        self.is_absurd = (looked_at < 0) | (looked_at > self.ints["numel"])


def _joined(layouts: Sequence[ValueLayout], name: str, convert: Callable[[list[Any]], Column]) -> Column:
    parts = [convert(getattr(layout, name)) for layout in layouts if layout.site]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _texts(values: Iterable[str | None]) -> Texts:
    number: dict[str | None, int] = {}
    at = np.array([number.setdefault(value, len(number)) for value in values], dtype=np.int64)
    return Texts(list(number) or [None], at)


def _input_names(layout: ValueLayout, names: list[str]) -> list[str | None]:
    """Return the name of the input of the call for each row about one, None for the others."""
    return [
        None if site != OF_THE_CALL else names[position] if 0 <= position < len(names) else f"input {position}"
        for site, position in zip(layout.site, layout.argument, strict=True)
    ]


def _occurrences(layout: ValueLayout) -> Ints:
    """Return the number of earlier rows about the same value: a launch in a loop runs several times."""
    seen: dict[tuple[Any, ...], int] = {}
    result = np.empty(len(layout.site), dtype=np.int64)
    keys = zip(layout.site, layout.argument, layout.moment, layout.item, layout.part, strict=True)
    for i, key in enumerate(keys):
        result[i] = seen[key] = seen.get(key, -1) + 1
    return result
