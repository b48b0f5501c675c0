"""The arguments of a launch for a script: storages, tensors on them, and where their values come from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from viewer.errors import StepscopeError
from viewer.queries.rows import ArgumentRow, ArgumentValues, LaunchDetail, ValueRow

Spec = dict[str, Any]
"""Plain data for the script, of numbers and texts."""
FindSaved = Callable[[int, int, int, int | None, str], Spec | None]
"""(launch, site, argument, item, moment) -> how the script loads the tensor; None: not saved, or its file is gone."""
_BITS = re.compile(r"(?:u?int|float|bfloat|complex)(\d+)")
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
    """What a script says of the arguments, and what it had to make up."""

    names: list[str]
    storages: list[Spec] = field(default_factory=list)
    tensors: list[Spec] = field(default_factory=list)
    after: list[Spec] = field(default_factory=list)
    made_up: list[str] = field(default_factory=list)
    exact: bool = True
    """Everything that the launch reads is as it was."""
    moved_bytes: int = 0


def gather(detail: LaunchDetail, find_saved: FindSaved) -> Arguments:
    """The arguments of a launch. Raises StepscopeError where the log does not say what they were."""
    site = detail.site
    outer = max(len(site.arguments) - len(site.outputs), 0)
    rows = [row for row in site.arguments[:outer] if not _is_scalar(row)]
    result = Arguments([row.name for row in rows])
    values = {found.argument: found for found in detail.values}
    storage_of: dict[object, int] = {}
    places = {}
    for row in rows:
        if not row.tensors:
            raise StepscopeError(f"The log has no size of {row.name}, an argument of launch {detail.launch}.")
        places[row.argument] = len(result.tensors)
        tensors = [
            _tensor(result, storage_of, detail, row, tensor, values.get(row.argument), find_saved)
            for tensor in row.tensors
        ]
        is_list = row.tensors[0]["item"] is not None
        result.tensors.append({"name": row.name, "role": row.role, "is_list": is_list, "tensors": tensors})
    for n, row in enumerate(site.arguments[outer:]):
        places[row.argument] = len(rows) + n
    named = {row.argument: row.parameter or row.name for row in site.arguments}
    for argument, found in values.items():
        if argument in places:
            result.after += [_statistics(row, places[argument], named[argument]) for row in found.after]
    return result


def _is_scalar(row: ArgumentRow) -> bool:
    return bool(row.tensors) and all(tensor["dtype"] in ("int", "SymInt", "bool", "float") and not tensor["device"]
                                     for tensor in row.tensors)  # fmt: skip


def _tensor(
    result: Arguments,
    storage_of: dict[object, int],
    detail: LaunchDetail,
    row: ArgumentRow,
    tensor: dict[str, Any],
    values: ArgumentValues | None,
    find_saved: FindSaved,
) -> Spec:
    name = row.name if tensor["item"] is None else f"{row.name}[{tensor['item']}]"
    item_bytes, extent = _checked(name, tensor)
    key: object = ("address", tensor["storage"]) if tensor["storage"] else ("name", row.storage or name, tensor["item"])
    number = storage_of.setdefault(key, len(result.storages))
    if number == len(result.storages):
        result.storages.append({"bytes": 0, "device": tensor["device"], "written": False, "uninitialised": False})
    storage = result.storages[number]
    known = tensor["storage_bytes"]
    if known is not None and extent > known:
        result.made_up.append(f"{name} reaches {extent - known:,} bytes beyond its storage; the storage is made larger")
    storage["bytes"] = max(storage["bytes"], extent, known or 0)
    storage["written"] |= row.role != "in"
    used = min(_numel(tensor["size"]) * item_bytes, extent)
    result.moved_bytes += used * (2 if row.role == "inout" else 1)
    spec: Spec = {
        "dtype": tensor["dtype"], "size": tensor["size"], "stride": tensor["stride"], "offset": tensor["offset"],
        "storage": number, "saved": None, "before": [], "free": False,
    }  # fmt: skip
    if row.role == "out":
        if row.held == "written":
            result.made_up.append(
                f"{name}: zeros where the launch does not overwrite it; what stood there was not kept"
            )
        return spec
    return _filled(result, spec, storage, name, detail, row, tensor["item"], values, find_saved)


def _filled(
    result: Arguments,
    spec: Spec,
    storage: Spec,
    name: str,
    detail: LaunchDetail,
    row: ArgumentRow,
    item: int | None,
    values: ArgumentValues | None,
    find_saved: FindSaved,
) -> Spec:
    """Where what it reads comes from: a saved tensor, statistics, or nothing."""
    if _numel(spec["size"]) == 0:
        return spec
    if row.held == "uninitialised" and row.role == "in":
        storage["uninitialised"] = True
        result.exact = False
        result.made_up.append(f"{name} is read before anybody wrote it: all bits are set, NaN in floating point")
        return spec
    before = [found for found in values.before if found.item == item] if values is not None else []
    spec["saved"] = find_saved(detail.launch, detail.site.site, row.argument, item, "before") or _of_version(
        before, find_saved
    )
    if spec["saved"] is not None:
        return spec
    result.exact = False
    if values is not None and any(found.moment == "before" and found.item == item for found in values.saved):
        name = f"{name} (its saved file is missing or has changed)"
    spec["before"] = [_statistics(found, 0, name) for found in before if found.skipped is None]
    if spec["before"]:
        result.made_up.append(f"{name}: random values with the recorded statistics{_placed(before)}")
    else:
        spec["free"] = True
        whole = not spec["dtype"].startswith(("float", "bfloat", "complex"))
        what = "zeros" if whole else "standard normal values"
        result.made_up.append(f"{name}: {what}, for the log has no statistics of it")
    return spec


def _of_version(before: Sequence[ValueRow], find_saved: FindSaved) -> Spec | None:
    """The file of what it read, saved when an earlier launch had written it."""
    if len(before) != 1:
        return None
    row = before[0]
    return find_saved(row.launch, row.site, row.argument, row.item, row.moment)


def _placed(rows: Iterable[ValueRow]) -> str:
    rows = list(rows)
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


def _checked(name: str, tensor: dict[str, Any]) -> tuple[int, int]:
    """Bytes of an element and of the storage up to the last one. Raises StepscopeError for what no tensor can be."""
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
        raise StepscopeError(f"{name} has a size or stride in the log that no tensor has.")
    bits = 8 if dtype == "bool" else int(_BITS.match(dtype)[1])  # type: ignore[index]
    item_bytes = max(bits // 8, 1)
    last = sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    extent = (offset + last + 1) * item_bytes if _numel(size) else 0
    if max(extent, tensor["storage_bytes"] or 0) > _MOST_BYTES:
        raise StepscopeError(f"{name} has a size in the log that no machine holds.")
    return item_bytes, extent


def _numel(size: Sequence[int]) -> int:
    total = 1
    for length in size:
        total *= length
    return total
