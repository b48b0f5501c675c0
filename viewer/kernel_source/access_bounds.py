"""Compares the range of addresses that a kernel's source accesses behind each pointer with the size of the storage."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stepscope.viewer.graphs.rows import ArgumentRow
from stepscope.viewer.kernel_source.index_ranges import affine, span
from stepscope.viewer.kernel_source.kernel_access import accesses, is_number, with_numbers
from stepscope.viewer.kernel_source.loaded_ranges import Interval, Loaded, loaded_ranges
from stepscope.viewer.kernel_source.triton_launch import SizeOf, uses_of_launch
from stepscope.viewer.kernel_source.triton_ranges import Does, Ends

_LOADED = re.compile(r"\btmp\w*\b")
_ITEM_BITS = re.compile(r"(\d+)")


@dataclass(frozen=True)
class Reach:
    """What all iterations of a kernel do behind one pointer, in elements from where the argument begins."""

    parameter: str
    argument: int
    name: str
    does: Literal["reads", "writes"]
    first: int | None
    last: int | None
    """None: `why_unknown`."""
    is_exact: bool
    """Else the index stays within these ends, and may come to neither."""
    room: Interval | None
    """First and last element of the storage; None: the argument was never seen at run time."""
    why_unknown: str | None = None
    held: tuple[str, ...] = ()
    """The arguments whose elements the index was read from; the ends follow from what they held."""

    @property
    def leaves(self) -> bool | None:
        """It goes beyond the storage; None: not known."""
        if self.may_leave is not True:
            return self.may_leave
        return True if self.is_exact else None

    @property
    def may_leave(self) -> bool | None:
        """Its ends are beyond the storage; None: they are not known."""
        if self.first is None or self.last is None or self.room is None:
            return None
        return not (self.room[0] <= self.first and self.last <= self.room[1])


def reaches(
    code: str,
    arguments: Sequence[ArgumentRow],
    held: Mapping[str, Interval] | None = None,
    numbers: Mapping[str, int] | None = None,
) -> list[Reach]:
    """Of the definition of a kernel that Inductor wrote, for each pointer among its arguments. `held`: smallest and
    largest element behind a pointer, by parameter; `numbers`: what the launch gives its other parameters."""
    pointers = {row.parameter: row for row in arguments if row.parameter is not None}
    code = with_numbers(code, numbers or {})
    known = accesses(code)
    loaded = loaded_ranges(code, held or {})
    found: list[Reach] = []
    for does in ("reads", "writes"):
        for parameter, row in pointers.items():
            uses = [(index, nest) for nest in known.nests for index in getattr(nest, does).get(parameter, ())]
            if uses:
                ends = [_ends(index, nest.bounds, (parameter, index) in nest.sure, loaded) for index, nest in uses]
                found.append(_reach(row, does, ends, pointers))
    for parameter in sorted(known.unread & pointers.keys()):
        found.append(_unknown(pointers[parameter], "reads", "its use in the kernel's source could not be read"))
    return sorted(found, key=lambda one: (not one.leaves, one.argument))


def user_reaches(
    definition: str,
    launch: str,
    arguments: Sequence[ArgumentRow],
    size_of: SizeOf,
    held: Mapping[str, Interval] | None = None,
) -> list[Reach]:
    """Of one launch of a Triton kernel that the user wrote; `held` as for `reaches`."""
    pointers = {row.parameter: row for row in arguments if row.parameter is not None}
    ends: defaultdict[tuple[str, Does], list[Ends]] = defaultdict(list)
    for use in uses_of_launch(definition, launch, list(pointers), size_of, held or {}):
        if use.ends is not None:
            ends[use.parameter, use.does].append(use.ends)
    found = [_reach(pointers[parameter], does, all_ends, pointers) for (parameter, does), all_ends in ends.items()]
    return sorted(found, key=lambda one: (not one.leaves, one.argument))


def _reach(row: ArgumentRow, does: Does, ends: Sequence[Ends], pointers: Mapping[str, ArgumentRow]) -> Reach:
    unknown = [why for why in ends if isinstance(why, str)]
    if unknown:
        return _unknown(row, does, unknown[0])
    known = [one for one in ends if not isinstance(one, str)]
    low, high = min(one[0][0] for one in known), max(one[0][1] for one in known)
    is_exact = all(one[1] for one in known)
    held = sorted({pointers[name].buffer or pointers[name].name for one in known for name in one[2]})
    name = row.buffer or row.name
    found = Reach(row.parameter or "", row.argument, name, does, low, high, is_exact, room_of(row), None, tuple(held))
    # Elements tell how far an index may go, not that it goes no farther: others may have been read.
    return found if not held or found.may_leave else _unknown(row, does, f"its index is read from {' and '.join(held)}")


def _unknown(row: ArgumentRow, does: Does, why: str) -> Reach:
    return Reach(row.parameter or "", row.argument, row.buffer or row.name, does, None, None, False, room_of(row), why)


def room_of(row: ArgumentRow) -> Interval | None:
    """First and last element of the storage, counted from the argument's own first."""
    seen = row.tensors[0] if len(row.tensors) == 1 else None
    if seen is None or seen["storage_bytes"] is None:
        return None
    elements = seen["storage_bytes"] // item_bytes(seen["dtype"])
    return -seen["offset"], elements - seen["offset"] - 1


def item_bytes(dtype: str) -> int:
    """``float32`` 4, ``bool`` 1, ``complex64`` 8, ``float8_e4m3fn`` 1."""
    bits = _ITEM_BITS.search(dtype)
    return max(1, int(bits[1]) // 8) if bits and len(bits[1]) < 4 else 1


def extent_bytes(tensor: Mapping[str, Any]) -> int | None:
    """Bytes from the begin of a storage to the last element of a tensor in it; None: its form is not known."""
    size, stride, offset = tensor["size"], tensor["stride"], tensor["offset"]
    if size is None or stride is None or offset is None or len(size) != len(stride):
        return None
    if 0 in size:
        return 0
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True) if step > 0)
    return int((last + 1) * item_bytes(tensor["dtype"]))


def _ends(index: str, bounds: Mapping[str, str], is_sure: bool, loaded: Mapping[str, Loaded]) -> Ends:
    """Between which elements an index runs, and whether it comes to both, as it does in a use that is made in all
    iterations; else why that is not known."""
    read = set(_LOADED.findall(index))
    if not read <= loaded.keys():
        return f"its index is read from memory: {index}"
    ends = {name: int(end) for name, end in bounds.items() if is_number(end) and int(end) > 0}
    line = affine(index)
    if line is not None and {name for name in line if name} <= ends.keys():
        return span(line, ends), is_sure, frozenset()
    between = {name: (0, end - 1) for name, end in ends.items()} | {name: loaded[name].ends for name in read}
    try:
        held = frozenset(parameter for name in read for parameter in loaded[name].parameters)
        return _interval(ast.parse(index.replace("c10::", ""), mode="eval").body, between), False, held
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return f"its index or a bound of it is no number in the source: {index}"


def _interval(node: ast.expr, ends: Mapping[str, Interval]) -> Interval:
    """Between which numbers an expression lies. Raises ValueError when it cannot tell."""
    match node:
        case ast.Constant(value=int() as value):
            return value, value
        case ast.Name(id=name) if name in ends:
            return ends[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            low, high = _interval(operand, ends)
            return -high, -low
        case ast.Call(func=ast.Name(id="div_floor_integer"), args=[left, right], keywords=[]):
            return _interval(ast.BinOp(left, ast.FloorDiv(), right), ends)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _interval(left, ends), _interval(right, ends)
            if isinstance(op, ast.Add):
                return a[0] + b[0], a[1] + b[1]
            if isinstance(op, ast.Sub):
                return a[0] - b[1], a[1] - b[0]
            if isinstance(op, ast.Mult):
                corners = [x * y for x in a for y in b]
                return min(corners), max(corners)
            if b[0] == b[1] and b[0] > 0 and a[0] >= 0:
                if isinstance(op, ast.FloorDiv | ast.Div):  # of integers, in C++
                    return a[0] // b[0], a[1] // b[0]
                if isinstance(op, ast.Mod):
                    return a if a[1] < b[0] else (0, b[0] - 1)
    raise ValueError("not known")
