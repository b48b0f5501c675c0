"""Collects the value rows of calls that have ended, and encodes them as batches of columns."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Iterator
from itertools import count
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from stepscope.tracer.runtime.calls import GraphCall
from stepscope.tracer.runtime.stats.snapshots import finish_together, joined, runs
from stepscope.tracer.runtime.values.elements import elements_of
from stepscope.tracer.runtime.values.quick import Groups
from stepscope.tracer.runtime.values.reading import layout
from stepscope.tracer.schema.launches import DeviceTimes
from stepscope.tracer.schema.statistics import COUNTS, RECORDED_NUMBERS, Elements, Exact, Sparse, Values
from stepscope.tracer.schema.values import ValueLayout

RowArray = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
MOST_ROWS = 65_536
MOST_LAYOUTS = 4096
"""Maximum number of layouts remembered; sizes that vary from call to call give new layouts."""
FLOAT32_INTEGERS = 2.0**24
FLOAT32_NORMAL = 2.0**-126
_INTEGERS = ("int", "uint", "bool", "quint", "qint")


class PendingValues:
    """Collects the readings of calls. The caller must have acquired a lock."""

    def __init__(self) -> None:
        self._calls: deque[GraphCall] = deque()
        self._layouts: dict[tuple[int, ...], tuple[int, npt.NDArray[np.int8]]] = {}
        self._numbers = count()
        self._groups = Groups()

    def add(self, call: GraphCall) -> None:
        call.readings = self._groups.of(call.readings)
        self._calls.append(call)

    def now(self, call: GraphCall) -> Iterator[ValueLayout | Values]:
        """Yield records of the readings of a running call since the last time."""
        if call.readings:
            number, kind, new = self._layout(call)
            if new is not None:
                yield new
            blocks = [block.wait() for block in runs(block for _, block in call.readings)]
            elements = Elements([], [])
            _add_elements(elements, call, 0)
            record = encode([call.number], [number], joined(blocks), kind, elements)
            call.readings = []
            call.rows_written += len(kind)
            yield record

    def take(self, wait: bool) -> Iterator[ValueLayout | Values | DeviceTimes]:
        """Yield records of the calls whose rows have arrived, oldest first; with `wait`, of all calls."""
        if not self._calls:
            return
        # Other snapshots than those of a call's first and last reading are rare.
        finish_together((call.readings[n][1] for call in self._calls for n in (0, -1)), wait)
        while self._calls:
            calls, layouts, blocks, kinds, size = [], [], [], [], 0
            elements = Elements([], [])
            times = DeviceTimes([], [], [], "timestamps")
            while self._calls and size < MOST_ROWS:
                call = self._calls[0]
                blocks_of_call = runs(block for _, block in call.readings)
                found = [block.wait() if wait else block.rows() for block in blocks_of_call]
                if any(rows is None for rows in found):
                    break
                self._calls.popleft()
                number, kind, new = self._layout(call)
                if new is not None:
                    yield new
                calls.append(call.number)
                layouts.append(number)
                blocks += [rows for rows in found if rows is not None]
                kinds.append(kind)
                _add_elements(elements, call, size)
                size += len(kind)
                call.readings = []
                if call.device_times is not None:
                    _add_times(times, call)
            if not calls:
                break
            if times.call:
                yield times
            yield encode(calls, layouts, joined(blocks), np.concatenate(kinds), elements)

    def _layout(self, call: GraphCall) -> tuple[int, npt.NDArray[np.int8], ValueLayout | None]:
        key = (call.graph, call.rows_written, *[prepared.number for prepared, _ in call.readings])
        known = self._layouts.get(key)
        if known is not None:
            return (*known, None)
        if len(self._layouts) >= MOST_LAYOUTS:
            self._layouts.clear()
        number = next(self._numbers)
        prepared = [one for one, _ in call.readings]
        kinds = np.array([_kind(row.dtype) for p in prepared for row in p.rows], dtype=np.int8)
        self._layouts[key] = number, kinds
        return number, kinds, layout(number, call.graph, prepared, call.rows_written)


def _add_times(times: DeviceTimes, call: GraphCall) -> None:
    launches, durations = call.device_times() if call.device_times is not None else ([], [])
    times.call.extend([call.number] * len(launches))
    times.launch.extend(launches)
    times.duration_ns.extend(durations)
    call.device_times = None


def _kind(dtype: str) -> int:
    """Return 1 for integers, 2 for float64, 3 for uint64, and 0 for dtypes whose values float32 can represent."""
    if dtype == "uint64":
        return 3
    return 1 if dtype.startswith(_INTEGERS) else 2 if dtype in ("float64", "complex128") else 0


def _add_elements(elements: Elements, call: GraphCall, first: int) -> None:
    """Add the elements of `call`; `first` is the batch's row at which the rows of the call begin."""
    for prepared, block in call.readings:
        for row, numbers in elements_of(block):
            elements.row.append(first + row)
            elements.value.append(numbers)
        first += len(prepared.rows)


def encode(
    calls: list[int], layouts: list[int], rows: RowArray, kinds: npt.NDArray[np.int8], elements: Elements | None = None
) -> Values:
    """Return the batch of `rows` (dtype `ROW`, in the order of the calls' layouts)."""
    with np.errstate(all="ignore"):
        low, high = rows["min"].astype(np.float32), rows["max"].astype(np.float32)
        columns: dict[str, Any] = {
            "min": _floats(low),
            "max": _floats(high),
            **{name: _floats(short(rows[name])) for name in RECORDED_NUMBERS if name not in ("min", "max")},
            **{name: _sparse(rows[name]) for name in COUNTS},
        }
        return Values(
            call=calls,
            layout=layouts,
            first_bad=_sparse(rows["first_bad"], absent=-1),
            exact=_exact(rows, kinds, low, high),
            digest=base64.b64encode(rows["digest"].astype("<u8").tobytes()).decode() if len(rows) else None,
            elements=elements if elements is not None and elements.row else None,
            **columns,
        )


def _floats(values: npt.NDArray[Any]) -> list[float | None]:
    """Return `values`; orjson writes numpy arrays itself, float32 with the fewest digits and NaN as null."""
    return cast("list[float | None]", values)


def _sparse(column: npt.NDArray[np.int64], absent: int = 0) -> Sparse:
    row = np.flatnonzero(column != absent)
    return Sparse(cast("list[int]", row), cast("list[int]", column[row]))


def _exact(rows: RowArray, kinds: npt.NDArray[np.int8], low: npt.NDArray[Any], high: npt.NDArray[Any]) -> Exact:
    """Return the exact minima and maxima of the rows whose extremes float32 cannot represent."""
    some = np.flatnonzero(kinds)
    least, most = rows["min"][some], rows["max"][some]
    large = np.maximum(np.abs(least), np.abs(most)) >= FLOAT32_INTEGERS
    differs = ((low[some] != least) | (high[some] != most)) & ~np.isnan(least)
    row = some[np.where(kinds[some] == 2, differs, large)]
    bounds: list[list[Any]] = []
    for name in ("min", "max"):
        column = []
        for n in row.tolist():
            exact = int(rows[f"exact_{name}"][n])
            column.append(float(rows[name][n]) if kinds[n] == 2 else exact & (2**64 - 1) if kinds[n] == 3 else exact)
        bounds.append(column)
    return Exact(row.tolist(), *bounds)


def short(values: Floats) -> npt.NDArray[Any]:
    """Return `values` as float32, which is quick to print, or all rounded to 5 digits if one is out of its range."""
    found = values.astype(np.float32)
    if ((np.abs(found) < FLOAT32_NORMAL) & (values != 0)).any() or (np.isinf(found) & np.isfinite(values)).any():
        return rounded(values, 5)
    return found


def rounded(values: Floats, digits: int) -> Floats:
    """Return `values` rounded to `digits` significant digits."""
    scale = np.power(10.0, digits - 1 - np.floor(np.log10(np.abs(values))))
    result: Floats = np.round(values * scale) / scale
    return np.where(np.isfinite(result), result, values)
