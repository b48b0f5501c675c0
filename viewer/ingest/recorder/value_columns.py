"""Converts batches of values to columns and finds the launch of each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stepscope.tracer.schema.statistics import COUNTS, NONFINITE, NUMBERS
from stepscope.tracer.schema.values import OF_THE_CALL, SavedTensor, ValueLayout
from stepscope.viewer.ingest.columns import Column, Flags, Ints
from stepscope.viewer.ingest.damage import Damage, RecordPlace
from stepscope.viewer.ingest.lenient_json import dumps
from stepscope.viewer.ingest.recorder.launch_columns import LaunchPlaces
from stepscope.viewer.ingest.recorder.value_batch import UNCOUNTED, UNKNOWN, ValueColumns
from stepscope.viewer.ingest.recorder.value_batches import ValueRecords
from stepscope.viewer.ingest.rows import IndexRows

_NO_NUMBERS = ["nan", "inf", "-inf"]
_NONE = np.array([None], dtype=object)


class _Layouts:
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
        self.texts = {name: _joined(chosen, name, _objects) for name in ("moment", "part", "dtype", "skipped")}
        names = [_input_names(layout, inputs.get(layout.graph, [])) for layout in chosen if layout.site]
        self.texts["input"] = np.concatenate([_objects(one) for one in names]) if names else np.empty(0, np.object_)


def _joined(layouts: Sequence[ValueLayout], name: str, convert: Callable[[list[Any]], Column]) -> Column:
    parts = [convert(getattr(layout, name)) for layout in layouts if layout.site]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _objects(values: list[str | None]) -> Column:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


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


def add_values(
    batches: ValueRecords, rows: IndexRows, log: int, places: LaunchPlaces | None, inputs: Mapping[int, list[str]]
) -> None:
    """Add the rows of all batches in the order of their launches.

    `inputs` has the names of the inputs of each graph that no launch site names.
    """
    layouts = _Layouts(batches.layouts, inputs)
    seen: dict[int, int] = {}
    parts = [part for batch in batches.batches if (part := _placed(batch, layouts, places, seen, batches.damage))]
    if not parts:
        return
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    names = columns.pop("input")
    is_input = np.not_equal(names, _NONE).astype(bool)
    order = np.lexsort((columns["moment"] == "after", ~is_input, columns["launch"]))
    columns = {name: column[order] for name, column in columns.items()}
    value = rows.new_id("value_rows", len(order)) + np.arange(len(order))
    found = {"value": value, "log": np.full(len(order), log), **_finished(columns)}
    is_input, names = is_input[order], names[order]
    rows.add_columns("value_rows", {name: column[~is_input] for name, column in found.items()})
    if is_input.any():
        given = {name: column[is_input] for name, column in {**found, "name": names}.items()}
        rows.add_columns("input_rows", given)


def _placed(
    batch: ValueColumns, layouts: _Layouts, places: LaunchPlaces | None, seen: dict[int, int], damage: Damage
) -> dict[str, Column] | None:
    """Return the rows of a batch without those of unknown launches."""

    def problem(reason: str, text: str) -> None:
        damage.add(reason, text, batch.place.line, batch.place.byte)

    number = np.array([layouts.number.get(layout, -1) for layout in batch.layout.tolist()], dtype=np.int64)
    if (number < 0).any():  # counted when the batch was read; its rows cannot be assigned without the lengths
        return None
    length = layouts.length[number]
    if int(length.sum()) != batch.rows:
        problem("broken_values", f"{batch.rows} rows of values, where their layouts have {int(length.sum())}")
        return None
    if not batch.rows:
        return None
    owner = np.repeat(np.arange(len(number)), length)
    within = np.arange(batch.rows) - np.repeat(np.cumsum(length) - length, length)
    at = layouts.start[number][owner] + within
    call, use = _calls(batch, number, layouts, places, seen, problem)
    launch = np.full(batch.rows, UNKNOWN, dtype=np.int64)
    if places is not None:
        launch = _launches(places, call[owner], layouts.ints["site"][at], layouts.ints["occurrence"][at])
    keep = (launch >= 0) & use[owner]
    may_be_missing = np.zeros(batch.rows, dtype=bool)
    if places is not None:
        position = call[owner]
        before = layouts.texts["moment"][at] == "before"
        may_be_missing = before & (position >= 0) & ~places.has_ended[position]
    lost = int((use[owner] & ~keep & ~may_be_missing).sum())
    if lost:
        problem("unknown_launch", f"{lost:,} rows of values of launches that are not in the log")
    if not keep.any() or places is None:
        return None
    return _columns(batch, layouts, places, at, launch, keep, problem)


def _launches(places: LaunchPlaces, call: Ints, site: Ints, occurrence: Ints) -> Ints:
    """Return the launch of each row, or -1; for an input of a call it is the first launch of the call."""
    launch = places.launches(call, site, occurrence)
    is_input = (site == OF_THE_CALL) & (call >= 0)
    if is_input.any():
        of = call[is_input]
        launch[is_input] = np.where(places.count[of] > 0, places.first[of], UNKNOWN)
    return launch


def _calls(
    batch: ValueColumns,
    number: Ints,
    layouts: _Layouts,
    places: LaunchPlaces | None,
    seen: dict[int, int],
    problem: Callable[[str, str], None],
) -> tuple[Ints, Flags]:
    """Return the position of each call of the batch, or -1 if it is unknown, and which calls are valid.

    `seen` has the number of rows read per call.
    """
    use = np.ones(len(number), dtype=bool)
    position = np.full(len(number), UNKNOWN, dtype=np.int64)
    for i, call in enumerate(batch.call.tolist()):
        first = layouts.first[number[i]]
        if first < seen.get(call, 0):
            problem("broken_values", f"values of call {call} are there twice; the first are kept")
            use[i] = False
            continue
        seen[call] = first + int(layouts.length[number[i]])
        known = None if places is None else places.position.get(call)
        if known is not None and places is not None:
            if places.graph[known] != layouts.graph[number[i]]:
                problem("broken_values", f"values of call {call} have the layout of another graph")
                use[i] = False
            position[i] = known
    return position, use


def _columns(
    batch: ValueColumns,
    layouts: _Layouts,
    places: LaunchPlaces,
    at: Ints,
    launch: Ints,
    keep: Flags,
    problem: Callable[[str, str], None],
) -> dict[str, Column]:
    exact_min, exact_max = (np.full(batch.rows, None, dtype=object) for _ in range(2))
    rows, lows, highs = batch.exact
    exact_min[rows], exact_max[rows] = lows, highs
    at_least = np.zeros(batch.rows, dtype=bool)
    at_least[batch.at_least if batch.at_least is not None else []] = True
    at_all, at, row = at, at[keep], launch[keep]
    is_input = layouts.ints["site"][at] == OF_THE_CALL
    columns: dict[str, Column] = {
        "launch": places.launch_id[row], "call": places.launch_call[row], "step": places.launch_step[row],
        "site": places.launch_site[row],
        "argument": np.where(is_input, -1 - layouts.ints["argument"][at], layouts.ints["argument"][at]),
        "item": layouts.item[at],
        **{name: layouts.texts[name][at] for name in ("part", "moment", "dtype", "input")},
        "numel": layouts.ints["numel"][at], "looked_at": layouts.ints["looked_at"][at],
        "skipped": layouts.texts["skipped"][at],
        **{name: column[keep] for name, column in (*batch.ints.items(), *batch.floats.items())},
        "exact_min": exact_min[keep], "exact_max": exact_max[keep], "at_least": at_least[keep],
        "elements": _elements(batch, layouts.ints["numel"][at_all])[keep],
    }  # fmt: skip
    looked, numel = columns["looked_at"], columns["numel"]
    absurd = (looked < 0) | (looked > numel) | (columns["first_bad"] >= np.maximum(numel, 0))
    for name in COUNTS:
        absurd |= (columns[name] != UNCOUNTED) & ((columns[name] < 0) | (columns[name] > looked))
    if absurd.any():
        problem("absurd_value", f"{int(absurd.sum()):,} rows of values have impossible counts")
        columns["skipped"] = np.where(absurd, "its counts are impossible", columns["skipped"])
    return columns


def _elements(batch: ValueColumns, numel: Ints) -> Column:
    """Return the elements as JSON, or None if their number differs from that of the tensor or one is invalid."""
    found = np.full(batch.rows, None, dtype=object)
    for row, numbers in zip(*batch.elements, strict=True):
        if len(numbers) == numel[row] and all(map(_is_element, numbers)):
            found[row] = dumps(numbers)
    return found


def _is_element(value: Any) -> bool:
    return type(value) in (int, float, bool) or value in _NO_NUMBERS


def _finished(columns: dict[str, Column]) -> dict[str, Column]:
    """Return the columns of the index: unknown values masked, norm and largest magnitude added."""
    no_statistics = np.not_equal(columns["skipped"], _NONE).astype(bool)
    finite = columns["looked_at"] - sum(columns[name] for name in NONFINITE)
    found = dict(columns)
    for name in ("min", "max"):
        found[name] = values = columns[name].copy()
        texts = columns[f"exact_{name}"]
        has = np.not_equal(texts, _NONE).astype(bool)
        values[has] = [float(text) for text in texts[has]]
        texts[no_statistics] = None
    std = np.where(finite == 1, 0.0, columns["std"])
    with np.errstate(over="ignore", invalid="ignore"):
        n = np.maximum(finite, 0).astype(np.float64)
        found["l2"] = np.hypot(np.sqrt(n) * columns["mean"], np.sqrt(np.maximum(n - 1, 0)) * std)
        found["largest"] = np.maximum(np.abs(found["min"]), np.abs(found["max"]))
    unknown = {name: ~np.isfinite(found[name]) for name in NUMBERS}
    unknown |= {name: found[name] == UNCOUNTED for name in COUNTS}
    unknown["first_bad"] = found["first_bad"] == UNKNOWN
    found |= {name: np.ma.array(found[name], mask=mask | no_statistics) for name, mask in unknown.items()}
    found["item"] = np.ma.array(columns["item"], mask=columns["item"] == UNKNOWN)
    return found


def add_saved(
    saved: Sequence[tuple[SavedTensor, RecordPlace]],
    rows: IndexRows,
    log: int,
    places: LaunchPlaces | None,
    damage: Damage,
) -> None:
    """Add the saved tensors whose launch is known."""
    seen: dict[tuple[Any, ...], int] = {}
    for tensor, place in saved:
        key = tensor.call, tensor.site, tensor.argument, tensor.item, tensor.moment
        occurrence = seen[key] = seen.get(key, -1) + 1
        row = -1
        if places is not None and tensor.call in places.position:
            at = [np.array([n]) for n in (places.position[tensor.call], tensor.site, occurrence)]
            row = int(places.launches(*at)[0])
        if row < 0 and places is not None and _had_not_begun(tensor, places):
            continue
        if row < 0 or places is None:
            text = f"a saved tensor of a launch that is not in the log: {tensor.file}"
            damage.add("unknown_launch", text, place.line, place.byte)
            continue
        rows.add(
            "saved_tensors",
            tensor=rows.new_id("saved_tensors"),
            log=log,
            launch=int(places.launch_id[row]),
            site=int(places.launch_site[row]),
            argument=tensor.argument,
            item=tensor.item,
            moment=tensor.moment,
            file=tensor.file,
            dtype=tensor.dtype,
            size=dumps(tensor.size),
            tensor_bytes=tensor.tensor_bytes,
            sha256=tensor.sha256,
        )


def _had_not_begun(tensor: SavedTensor, places: LaunchPlaces) -> bool:
    """Return whether the launch, which is not in the log, may not have begun when its call was cut short."""
    position = places.position.get(tensor.call)
    return tensor.moment == "before" and position is not None and not places.has_ended[position]
