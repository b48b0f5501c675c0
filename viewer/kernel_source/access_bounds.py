"""Compares the range of addresses that a kernel's source accesses behind each pointer with the size of the storage."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stepscope.viewer.graphs.rows import ArgumentRow
from stepscope.viewer.kernel_source.element_access import Accesses, Ends
from stepscope.viewer.kernel_source.kernel_access import accesses
from stepscope.viewer.kernel_source.triton_launch import SizeOf, accesses_of_launch

Does = Literal["reads", "writes"]
Range = tuple[int, int]
_ITEM_BITS = re.compile(r"(\d+)")


@dataclass(frozen=True)
class Reach:
    """The elements that all iterations of a kernel access behind one pointer, counted from its argument's first."""

    parameter: str
    argument: int
    name: str
    does: Does
    first: int | None
    last: int | None
    """None if it is not known; `why_unknown` says why."""
    is_exact: bool
    """The kernel accesses `first` and `last`. If not, it stays within them and may access neither."""
    room: Range | None
    """First and last element of the storage; None if the argument was never seen at run time."""
    why_unknown: str | None = None
    held: tuple[str, ...] = ()
    """The arguments that the index was read from; the ends follow from their contents."""

    @property
    def leaves(self) -> bool | None:
        """Return whether the kernel accesses memory beyond the storage, or None if that is not known."""
        if self.may_leave is not True:
            return self.may_leave
        return True if self.is_exact else None

    @property
    def may_leave(self) -> bool | None:
        """Return whether the ends are beyond the storage, or None if they are not known."""
        if self.first is None or self.last is None or self.room is None:
            return None
        return not (self.room[0] <= self.first and self.last <= self.room[1])


def reaches(
    code: str,
    arguments: Sequence[ArgumentRow],
    held: Mapping[str, Range] | None = None,
    numbers: Mapping[str, int] | None = None,
) -> list[Reach]:
    """Return what a kernel that Inductor generated accesses behind each pointer among its arguments.

    `held` has the smallest and the largest element behind a pointer, by parameter; `numbers` has the numbers that the
    launch gives the other parameters.
    """
    names = [row.parameter for row in arguments if row.parameter is not None]
    return _reaches(accesses(code, names, numbers, held), arguments)


def user_reaches(
    definition: str,
    launch: str,
    arguments: Sequence[ArgumentRow],
    size_of: SizeOf,
    held: Mapping[str, Range] | None = None,
) -> list[Reach]:
    """Return what one launch of a Triton kernel that the user wrote accesses; `held` is that of `reaches`."""
    names = [row.parameter for row in arguments if row.parameter is not None]
    return _reaches(accesses_of_launch(definition, launch, names, size_of, held or {}), arguments)


def _reaches(known: Accesses, arguments: Sequence[ArgumentRow]) -> list[Reach]:
    pointers = {row.parameter: row for row in arguments if row.parameter is not None}
    ends: defaultdict[tuple[str, Does], list[Ends]] = defaultdict(list)
    for access in (access for nest in known.nests for access in nest):
        if access.pointer in pointers and access.ends is not None:
            ends[access.pointer, "writes" if access.is_write else "reads"].append(access.ends)
    for parameter in sorted(known.unread & pointers.keys()):
        ends[parameter, "reads"].append("its use in the kernel's source could not be read")
    found = [_reach(pointers[parameter], does, all_ends, pointers) for (parameter, does), all_ends in ends.items()]
    return sorted(found, key=lambda one: (not one.leaves, one.argument, one.does))


def _reach(row: ArgumentRow, does: Does, ends: Sequence[Ends], pointers: Mapping[str, ArgumentRow]) -> Reach:
    unknown = [why for why in ends if isinstance(why, str)]
    if unknown:
        return _unknown(row, does, unknown[0])
    known = [one for one in ends if not isinstance(one, str)]
    first, last = min(one[0][0] for one in known), max(one[0][1] for one in known)
    sure = [place for places, is_exact, _ in known if is_exact for place in places]
    held = sorted({pointers[name].buffer or pointers[name].name for one in known for name in one[2]})
    found = Reach(
        row.parameter or "", row.argument, row.buffer or row.name, does, first, last, {first, last} <= set(sure),
        room_of(row), None, tuple(held),
    )  # fmt: skip
    # Contents tell how far an index may go, not that it goes no farther: other elements may have been read.
    return found if not held or found.may_leave else _unknown(row, does, f"its index is read from {' and '.join(held)}")


def _unknown(row: ArgumentRow, does: Does, why: str) -> Reach:
    return Reach(row.parameter or "", row.argument, row.buffer or row.name, does, None, None, False, room_of(row), why)


def room_of(row: ArgumentRow) -> Range | None:
    """Return the first and the last element of the storage, counted from the argument's own first element."""
    seen = row.tensors[0] if len(row.tensors) == 1 else None
    if seen is None or seen["storage_bytes"] is None:
        return None
    elements = seen["storage_bytes"] // item_bytes(seen["dtype"])
    return -seen["offset"], elements - seen["offset"] - 1


def item_bytes(dtype: str) -> int:
    """Return the bytes of an element: 4 for ``float32``, 8 for ``complex64``, 1 for ``bool`` or ``float8_e4m3fn``."""
    bits = _ITEM_BITS.search(dtype)
    return max(1, int(bits[1]) // 8) if bits and len(bits[1]) < 4 else 1


def extent_bytes(tensor: Mapping[str, Any]) -> int | None:
    """Return the bytes from the start of a storage to the end of a tensor in it, or None if its shape is unknown."""
    size, stride, offset = tensor["size"], tensor["stride"], tensor["offset"]
    if size is None or stride is None or offset is None or len(size) != len(stride):
        return None
    if 0 in size:
        return 0
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True) if step > 0)
    return int((last + 1) * item_bytes(tensor["dtype"]))
