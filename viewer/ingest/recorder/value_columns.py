"""Finds the launch of each row of values, and sorts the rows of a log by launch in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from stepscope.tracer.schema.values import OF_THE_CALL, SavedTensor
from stepscope.viewer.ingest.columns import Flags, Ints
from stepscope.viewer.ingest.damage import Damage, RecordPlace
from stepscope.viewer.ingest.lenient_json import dumps
from stepscope.viewer.ingest.recorder.launch_places import NO_PLACES, LaunchPlaces
from stepscope.viewer.ingest.recorder.value_batch import FIRST_BAD, UNKNOWN, ValueColumns
from stepscope.viewer.ingest.recorder.value_batches import ValueRecords
from stepscope.viewer.ingest.recorder.value_layouts import Layouts
from stepscope.viewer.ingest.recorder.value_parts import ValuePart
from stepscope.viewer.ingest.rows import AT_ONCE_ROWS, IndexRows
from stepscope.viewer.ingest.spill import Spill

_KINDS = 4
"""Rows of a launch are sorted by its inputs of the call, then before, then after."""


def add_values(
    batches: ValueRecords, rows: IndexRows, log: int, places: LaunchPlaces | None, inputs: Mapping[int, list[str]]
) -> None:
    """Add the rows of all batches in the order of their launches.

    `inputs` has the names of the inputs of each graph that no launch site names.
    """
    places = places or NO_PLACES
    layouts, spill = Layouts(batches.layouts, inputs), batches.spill or Spill()
    for found in _sorted_parts(batches, layouts, places):
        count = len(found["at"])
        value = rows.new_id("value_rows", count) + np.arange(count)
        is_input = layouts.is_input[found["at"]]
        for table, chosen in (("value_rows", ~is_input), ("input_rows", is_input)):
            if chosen.any():
                of_table = {name: column[chosen] for name, column in {**found, "value": value}.items()}
                kept = {name: spill.keep(column) for name, column in of_table.items()}
                part = ValuePart(log, batches.batches, layouts, places, kept, table == "input_rows")
                rows.add_later(table, int(chosen.sum()), part.columns)


def _sorted_parts(batches: ValueRecords, layouts: Layouts, places: LaunchPlaces) -> Iterator[dict[str, Ints]]:
    """Yield the rows, sorted by launch, in parts of about `AT_ONCE_ROWS`. Logs are nearly sorted, so few rows wait for
    earlier ones that are still to come."""
    seen: dict[int, int] = {}
    to_come = _least_to_come(batches.batches, places)
    waiting, count, most = list[dict[str, Ints]](), 0, AT_ONCE_ROWS
    for number, batch in enumerate(batches.batches):
        placed = _placed(batch, layouts, places, seen, batches.damage)
        if placed is not None:
            placed["batch"] = np.full(len(placed["at"]), number, dtype=np.int32)
            waiting.append(placed)
            count += len(placed["at"])
        is_last = number + 1 == len(batches.batches)
        if not waiting or (count < most and not is_last):
            continue
        found = {name: np.concatenate([part[name] for part in waiting]) for name in waiting[0]}
        order = np.argsort(found["key"], kind="stable")
        ready = count
        if not is_last:
            ready = int(np.searchsorted(found["key"], to_come[number + 1] * _KINDS, sorter=order))
            ready -= ready % AT_ONCE_ROWS
        for first in range(0, ready, AT_ONCE_ROWS):
            chosen = order[first : min(first + AT_ONCE_ROWS, ready)]
            yield {name: column[chosen] for name, column in found.items() if name != "key"}
        places.let_go()
        waiting, count = [{name: column[order[ready:]] for name, column in found.items()}], count - ready
        most = max(AT_ONCE_ROWS, 2 * count)


def _least_to_come(batches: Sequence[ValueColumns], places: LaunchPlaces) -> Ints:
    """Return the least id of a launch in each batch or a later one."""
    most = np.iinfo(np.int64).max // _KINDS
    least = np.full(len(batches), most)
    if len(places.launch_id):
        of_calls = np.full(len(places.first), most)
        for part in places.ranges():
            has = places.count[part.calls] > 0
            if has.any():
                begins = places.first[part.calls][has] - part.launches.start
                of_calls[part.calls][has] = np.minimum.reduceat(places.launch_id[part.launches], begins)
        for number, batch in enumerate(batches):
            known = [places.position[call] for call in batch.call.tolist() if call in places.position]
            least[number] = of_calls[known].min(initial=most)
    return np.minimum.accumulate(least[::-1])[::-1]


def _placed(
    batch: ValueColumns, layouts: Layouts, places: LaunchPlaces, seen: dict[int, int], damage: Damage
) -> dict[str, Ints] | None:
    """Return the rows of a batch that belong to known launches: the position of each in the batch, its row of the
    layouts, its launch, the key by which rows are sorted, and whether its counts are impossible."""

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
    position = call[owner]
    launch = _launches(places, position, layouts.ints["site"][at], layouts.ints["occurrence"][at])
    keep = (launch >= 0) & use[owner]
    if not keep.all():
        may_be_missing = ~layouts.is_after[at] & (position >= 0)
        may_be_missing[may_be_missing] = ~places.has_ended[position[may_be_missing]]
        lost = int((use[owner] & ~keep & ~may_be_missing).sum())
        if lost:
            problem("unknown_launch", f"{lost:,} rows of values of launches that are not in the log")
    absurd = _absurd(batch, layouts, at) & keep
    if absurd.any():
        problem("absurd_value", f"{int(absurd.sum()):,} rows of values have impossible counts")
    row = np.flatnonzero(keep)
    at, launch = at[row], launch[row]
    kind = 2 * ~layouts.is_input[at] + layouts.is_after[at]
    return {
        "row": row.astype(np.int32), "at": at.astype(np.int32), "launch": launch.astype(np.int32),
        "owner": position[row].astype(np.int32),
        "key": places.launch_id[launch] * _KINDS + kind, "absurd": absurd[row],
    }  # fmt: skip


def _absurd(batch: ValueColumns, layouts: Layouts, at: Ints) -> Flags:
    """Return which rows count more elements than they have."""
    absurd = layouts.is_absurd[at]
    for name, column in batch.sparse.items():
        if column is not None:
            rows, values = (kept() for kept in column)
            if len(rows):
                most = layouts.ints["looked_at" if name != FIRST_BAD else "numel"][at[rows]]
                if name == FIRST_BAD:
                    absurd[rows] |= values >= np.maximum(most, 0)
                else:
                    absurd[rows] |= (values < 0) | (values > most)
    return absurd


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
    layouts: Layouts,
    places: LaunchPlaces,
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
        known = places.position.get(call)
        if known is not None:
            if places.graph[known] != layouts.graph[number[i]]:
                problem("broken_values", f"values of call {call} have the layout of another graph")
                use[i] = False
            position[i] = known
    return position, use


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
            site=places.site_of_one(row),
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
