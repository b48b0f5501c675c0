"""Gathers the arguments of a launch for a script: storages, tensors on them, and the sources of their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isfinite, prod
from typing import Any

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.graphs.rows import ArgumentRow
from stepscope.viewer.judged.rows import JudgedBufferRow
from stepscope.viewer.kernel_source.access_bounds import extent_bytes, item_bytes
from stepscope.viewer.steps.rows import LaunchDetail
from stepscope.viewer.values.rows import ValueRow

Spec = dict[str, Any]
"""Plain data for the script: numbers and texts."""
FindSaved = Callable[[int, int, int, int | None, str, list[int]], Spec | None]
"""Returns how the script loads the tensor that was saved at (launch, site, argument, item, moment, size).

Returns None if it was not saved or has another size, or if its file is gone.
"""
_DTYPE = re.compile(r"bool|u?int(?:8|16|32|64)|float(?:8_\w+|16|32|64)|bfloat16|complex(?:32|64|128)")
_DEVICE = re.compile(r"(cpu|cuda|xpu|mps)(:\d{1,3})?")
_MOST_BYTES = 1 << 44
_INT64 = (-(2**63), 2**63 - 1)
_STATISTICS = (
    ("nan", "nan"), ("+inf", "positive_infinity"), ("-inf", "negative_infinity"), ("zero", "zero"), ("min", "min"),
    ("max", "max"), ("mean", "mean"), ("std", "std"), ("l2", "l2"), ("looked_at", "looked_at"),
    ("first_bad", "first_bad"),
)  # fmt: skip


@dataclass
class Arguments:
    """The arguments of a launch in a script, and remarks on values that are made up."""

    names: list[str]
    storages: list[Spec] = field(default_factory=list)
    tensors: list[Spec] = field(default_factory=list)
    after: list[Spec] = field(default_factory=list)
    wrong: list[Spec] = field(default_factory=list)
    """The worst elements of results that the judge found wrong."""
    made_up: list[str] = field(default_factory=list)
    exact: bool = True
    """The launch reads the recorded values alone."""
    moved_bytes: int = 0


def gather(
    detail: LaunchDetail, earlier: LaunchDetail | None, judged: Sequence[JudgedBufferRow], find_saved: FindSaved
) -> Arguments:
    """Return the arguments of a launch. Raises StepscopeError if the log lacks their sizes.

    `earlier` is a launch of the same site whose statistics are used if the process died before it wrote those of the
    last launch. `judged` are the buffers of the launch that the judge found wrong.
    """
    site = detail.site
    outer = max(len(site.arguments) - len(site.outputs), 0)
    rows = [row for row in site.arguments[:outer] if not _is_scalar(row)]
    gatherer = _Gatherer(detail, earlier, find_saved, Arguments([row.name for row in rows]))
    for row in rows:
        gatherer.add(row)
    places = {row.argument: place for place, row in enumerate([*rows, *site.arguments[outer:]])}
    named = {row.argument: row.parameter or row.name for row in site.arguments}
    result = gatherer.result
    for found in detail.values:
        if found.argument in places:
            result.after += [_statistics(row, places[found.argument], named[found.argument]) for row in found.after]
    written = {row.buffer or row.name: places[row.argument] for row in site.arguments
               if row.argument in places and row.role != "in"}  # fmt: skip
    result.wrong = [_worst(row, written[row.buffer]) for row in judged if row.buffer in written]
    return result


def _worst(row: JudgedBufferRow, at: int) -> Spec:
    """Return the worst element of a result that the judge found wrong."""
    return {"at": at, "item": None, "name": row.buffer, "size": row.size, "index": row.index,
            "compiled": row.compiled, "float64": row.float64, "allowed": row.allowed}  # fmt: skip


def _is_scalar(row: ArgumentRow) -> bool:
    """Return whether an argument is a number that the wrapper computes, whose value follows from its expression."""
    kinds = ("int", "SymInt", "bool", "float")
    return bool(row.tensors) and all(t["dtype"] in kinds and not t["device"] for t in row.tensors)


class _Gatherer:
    """Assigns the arguments of one launch to storages."""

    def __init__(
        self, detail: LaunchDetail, earlier: LaunchDetail | None, find_saved: FindSaved, result: Arguments
    ) -> None:
        self.result = result
        self._detail, self._earlier, self._find_saved = detail, earlier, find_saved
        self._storages: dict[object, int] = {}

    def add(self, row: ArgumentRow) -> None:
        if not row.tensors:
            raise StepscopeError(f"The log has no size of {row.name}, an argument of launch {self._detail.launch}.")
        is_list = row.tensors[0]["item"] is not None
        tensors = [self._tensor(row, tensor) for tensor in row.tensors]
        self.result.tensors.append({"name": row.name, "role": row.role, "is_list": is_list, "tensors": tensors})

    def _tensor(self, row: ArgumentRow, tensor: dict[str, Any]) -> Spec:
        name = row.name if tensor["item"] is None else f"{row.name}[{tensor['item']}]"
        extent = _checked(name, tensor)
        number = self._storage(row, tensor, name, extent)
        used = min(prod(tensor["size"]) * item_bytes(tensor["dtype"]), extent)
        self.result.moved_bytes += used * (2 if row.role == "inout" else 1)
        spec: Spec = {
            "dtype": tensor["dtype"], "size": tensor["size"], "stride": tensor["stride"], "offset": tensor["offset"],
            "storage": number, "saved": None, "before": [], "free": False,
        }  # fmt: skip
        if row.role != "out":
            if extent:
                self._fill(spec, row, tensor["item"], name)
        elif row.held == "written":
            self._say(
                f"{name}: zeros where the launch does not overwrite it, because its earlier content was not recorded"
            )
        return spec

    def _storage(self, row: ArgumentRow, tensor: dict[str, Any], name: str, extent: int) -> int:
        """Return the number of a tensor's storage, which is added or made large enough if necessary."""
        known, address = tensor["storage_bytes"], tensor["storage"]
        key: object = ("address", tensor["call"], address) if address else ("name", row.storage or name, tensor["item"])
        number = self._storages.setdefault(key, len(self._storages))
        if number == len(self.result.storages):
            made = {"bytes": 0, "device": tensor["device"], "written": False, "uninitialised": False}
            self.result.storages.append(made)
        storage = self.result.storages[number]
        if known is not None and extent > known:
            self._say(f"{name} reaches {extent - known:,} bytes beyond its storage; the storage is made larger")
        storage["bytes"] = max(storage["bytes"], extent, known or 0)
        storage["written"] |= row.role != "in"
        return number

    def _fill(self, spec: Spec, row: ArgumentRow, item: int | None, name: str) -> None:
        """Set the source of the values that are read: a saved tensor, statistics, or neither."""
        if row.held == "uninitialised" and row.role == "in":
            self.result.storages[spec["storage"]]["uninitialised"] = True
            self._say(
                f"{name} is read but was never written: all bits are set, which is NaN in floating point", exact=False
            )
            return
        if row.held == "uninitialised":
            self._say(f"{name}: zeros, because no launch had written it before")
            return
        before = _before(self._detail, row.argument, item)
        places = [(self._detail.launch, self._detail.site.site, row.argument, item, "before")]
        places += [(found.launch, found.site, found.argument, found.item, found.moment) for found in before[:1]]
        saved = (self._find_saved(*place, spec["size"]) for place in places)
        spec["saved"] = next((found for found in saved if found is not None), None)
        if spec["saved"] is not None:
            return
        saved_rows = [one for found in self._detail.values if found.argument == row.argument for one in found.saved]
        if any(one.moment == "before" and one.item == item for one in saved_rows):
            name = f"{name} (its saved file is missing or has changed)"
        whose = "recorded statistics"
        if not before and self._earlier is not None:
            before, whose = _before(self._earlier, row.argument, item), f"statistics of launch {self._earlier.launch}"
        spec["before"] = [_statistics(found, 0, name) for found in before]
        if before:
            self._say(f"{name}: random values with the {whose}{_placed(before)}", exact=False)
        else:
            spec["free"] = True
            floats = spec["dtype"].startswith(("float", "bfloat", "complex"))
            what = "standard normal values" if floats else "zeros"
            self._say(f"{name}: {what}, because the log has no statistics of it", exact=False)

    def _say(self, text: str, exact: bool = True) -> None:
        self.result.made_up.append(text)
        self.result.exact &= exact


def _before(detail: LaunchDetail, argument: int, item: int | None) -> list[ValueRow]:
    """Return the statistics of an argument before a launch."""
    return [
        row
        for found in detail.values
        if found.argument == argument
        for row in found.before
        if row.item == item and row.skipped is None
    ]


def _placed(rows: Sequence[ValueRow]) -> str:
    sampled = " of a sample" if any(row.looked_at < row.numel for row in rows) else ""
    bad = [row.first_bad for row in rows if row.first_bad is not None]
    return sampled + (f", NaN and infinities at random places from element {bad[0]} on" if bad else "")


def _statistics(row: ValueRow, at: int, name: str) -> Spec:
    found: Spec = {key: getattr(row, attribute) for key, attribute in _STATISTICS}
    for key, value in found.items():
        if isinstance(value, int):
            found[key] = min(max(value, _INT64[0]), _INT64[1])
        elif isinstance(value, float) and not isfinite(value):
            found[key] = None
    place = name if row.item is None else f"{name}[{row.item}]"
    text = place if row.part is None else f"{place}.{row.part}"
    return {"at": at, "item": row.item, "part": row.part, "name": text, "dtype": row.dtype, "numel": row.numel,
            "skipped": row.skipped, **found}  # fmt: skip


def _checked(name: str, tensor: dict[str, Any]) -> int:
    """Return the bytes of the storage up to the last element. Raises StepscopeError if impossible."""
    size, stride, offset, dtype = tensor["size"], tensor["stride"], tensor["offset"], str(tensor["dtype"])
    if (
        not _DTYPE.fullmatch(dtype)
        or not isinstance(size, list)
        or not isinstance(stride, list)
        or len(size) != len(stride)
        or not _DEVICE.fullmatch(tensor["device"])
    ):
        what = f"{dtype} on {tensor['device']}" if tensor["device"] else dtype
        raise StepscopeError(f"{name} was {what}, which cannot be written into a script.")
    numbers = [*size, *stride, offset]
    if not all(type(number) is int and 0 <= number < 2**63 for number in numbers):
        raise StepscopeError(f"{name} has an invalid size or stride in the log.")
    extent = extent_bytes(tensor) or 0
    if max(extent, tensor["storage_bytes"] or 0) > _MOST_BYTES:
        raise StepscopeError(f"{name} has a size in the log that exceeds any memory.")
    return extent
