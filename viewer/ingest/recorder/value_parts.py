"""Makes the columns of the index of a part of the value rows of a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stepscope.tracer.schema.statistics import COUNTS, NONFINITE, NUMBERS, RECORDED_NUMBERS
from stepscope.viewer.ingest.columns import Column, Flags, Ints, Texts
from stepscope.viewer.ingest.lenient_json import dumps
from stepscope.viewer.ingest.recorder.launch_places import LaunchPlaces
from stepscope.viewer.ingest.recorder.value_batch import FIRST_BAD, UNCOUNTED, UNKNOWN, Floats, ValueColumns
from stepscope.viewer.ingest.recorder.value_layouts import Layouts
from stepscope.viewer.ingest.spill import Kept

_NO_NUMBERS = ["nan", "inf", "-inf"]


@dataclass(frozen=True)
class ValuePart:
    """Rows of `value_rows` or `input_rows`: the batch of each and its position there, its row of the layouts, its
    launch, its id, and whether its counts are impossible."""

    log: int
    batches: Sequence[ValueColumns]
    layouts: Layouts
    places: LaunchPlaces
    rows: Mapping[str, Kept]
    of_inputs: bool

    def columns(self) -> dict[str, Column | Texts]:
        rows = {name: kept() for name, kept in self.rows.items()}
        layouts, places, at, launch = self.layouts, self.places, rows["at"], rows["launch"]
        source = _Joined(self.batches, rows["batch"], rows["row"])
        argument, owner = layouts.ints["argument"][at], rows["owner"]
        texts = {name: Texts(one.texts, one.at[at]) for name, one in layouts.texts.items()}
        absurd, names = rows["absurd"], texts.pop("input")
        if absurd.any():
            skipped = texts["skipped"]
            codes = np.where(absurd, len(skipped.texts), skipped.at)
            texts["skipped"] = Texts([*skipped.texts, "its counts are impossible"], codes)
        numel, looked_at = layouts.ints["numel"][at], layouts.ints["looked_at"][at]
        found: dict[str, Column | Texts] = {
            "value": rows["value"], "log": np.full(len(at), self.log, dtype=np.int64),
            "launch": places.launch_id[launch], "call": places.call_id[owner],
            "step": places.call_step[owner], "site": places.site(launch, owner),
            "argument": -1 - argument if self.of_inputs else argument,
            "item": _masked(layouts.item[at], layouts.item[at] == UNKNOWN), **texts,
            "numel": numel, "looked_at": looked_at, "at_least": source.at_least(),
            "digest": source.digest(rows["absurd"]), "elements": source.elements(numel),
        }  # fmt: skip
        places.let_go()
        if self.of_inputs:
            found["name"] = names
        return {**found, **_statistics(source, looked_at, layouts.is_skipped[at] | absurd)}


class _Joined:
    """The batches of a part, joined."""

    def __init__(self, batches: Sequence[ValueColumns], batch: Ints, row: Ints) -> None:
        numbers, which = np.unique(batch, return_inverse=True)
        self._batches = [batches[number] for number in numbers.tolist()]
        lengths = np.array([batch.rows for batch in self._batches], dtype=np.int64)
        self._first = np.cumsum(lengths) - lengths
        self._rows = int(lengths.sum())
        self._at = self._first[which] + row

    def floats(self, name: str) -> Floats:
        column: Floats = np.concatenate([batch.floats[name]() for batch in self._batches])[self._at]
        return column

    def sparse(self, name: str) -> Ints:
        """Return a sparse column with a value for each row: `UNCOUNTED` for a count that was not counted."""
        column: Ints = np.full(self._rows, UNKNOWN if name == FIRST_BAD else 0, dtype=np.int64)
        for first, batch in zip(self._first.tolist(), self._batches, strict=True):
            sparse = batch.sparse[name]
            if sparse is None:
                column[first : first + batch.rows] = UNCOUNTED
            else:
                rows, values = sparse
                column[first + rows()] = values()
        found: Ints = column[self._at]
        return found

    def exact(self) -> tuple[Column, Column] | None:
        """Return the exact extremes as text; None if no row has any."""
        if not any(len(batch.exact[0]) for batch in self._batches):
            return None
        low, high = (np.full(self._rows, None, dtype=object) for _ in range(2))
        for first, batch in zip(self._first.tolist(), self._batches, strict=True):
            rows, lows, highs = batch.exact
            low[first + rows], high[first + rows] = lows, highs
        return low[self._at], high[self._at]

    def at_least(self) -> Flags:
        flags = np.zeros(self._rows, dtype=bool)
        for first, batch in zip(self._first.tolist(), self._batches, strict=True):
            flags[first + batch.at_least] = True
        found: Flags = flags[self._at]
        return found

    def digest(self, no_digest: Flags) -> Column | Texts:
        if all(batch.digest is None for batch in self._batches):
            return _nothing(len(self._at))
        digests: Column = np.concatenate(
            [
                np.zeros(batch.rows, dtype=np.int64) if batch.digest is None else batch.digest()
                for batch in self._batches
            ]
        )[self._at]
        return _masked(digests, (digests == 0) | no_digest)

    def elements(self, numel: Ints) -> Column | Texts:
        """Return the elements as JSON, or None if their number differs from that of the tensor or one is invalid."""
        if not any(len(batch.elements[0]) for batch in self._batches):
            return _nothing(len(numel))
        kept = {
            first + row: numbers
            for first, batch in zip(self._first.tolist(), self._batches, strict=True)
            for row, numbers in zip(batch.elements[0].tolist(), batch.elements[1], strict=True)
        }
        found = np.full(len(numel), None, dtype=object)
        for i, (at, count) in enumerate(zip(self._at.tolist(), numel.tolist(), strict=True)):
            numbers = kept.get(at)
            if numbers is not None and len(numbers) == count and all(map(_is_element, numbers)):
                found[i] = dumps(numbers)
        return found


def _is_element(value: Any) -> bool:
    return type(value) in (int, float, bool) or value in _NO_NUMBERS


def _nothing(count: int) -> Texts:
    return Texts([None], np.zeros(count, dtype=np.int8))


def _statistics(source: _Joined, looked_at: Ints, no_statistics: Flags) -> dict[str, Column | Texts]:
    """Return the statistics, unknown ones masked, with norm and largest magnitude."""
    counts = {name: source.sparse(name) for name in (*COUNTS, FIRST_BAD)}
    numbers = {name: source.floats(name) for name in RECORDED_NUMBERS}
    exact, texts = source.exact(), dict[str, Column | Texts]()
    for place, name in enumerate(("min", "max")):
        if exact is None:
            texts[f"exact_{name}"] = _nothing(len(looked_at))
            continue
        found = texts[f"exact_{name}"] = exact[place]
        has = np.not_equal(found, np.array([None])).astype(bool)
        numbers[name][has] = [float(text) for text in found[has]]
        found[no_statistics] = None
    finite = looked_at - sum(counts[name] for name in NONFINITE)
    std = np.where(finite == 1, 0.0, numbers["std"])
    with np.errstate(over="ignore", invalid="ignore"):
        n = np.maximum(finite, 0).astype(np.float64)
        numbers["l2"] = np.hypot(np.sqrt(n) * numbers["mean"], np.sqrt(np.maximum(n - 1, 0)) * std)
        numbers["largest"] = np.maximum(np.abs(numbers["min"]), np.abs(numbers["max"]))
    unknown = {name: ~np.isfinite(numbers[name]) for name in NUMBERS}
    unknown |= {name: counts[name] == (UNKNOWN if name == FIRST_BAD else UNCOUNTED) for name in counts}
    columns = {**numbers, **counts}
    return {**texts, **{name: _masked(columns[name], mask | no_statistics) for name, mask in unknown.items()}}


def _masked(column: Column, mask: Flags) -> Column:
    return np.ma.array(column, mask=mask) if mask.any() else column
