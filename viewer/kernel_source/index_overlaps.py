"""Decides whether a kernel reads an element after another iteration of the same loops has overwritten it.

An overlap is reported only with a proof: the accesses are evaluated until one element is found that is written first
and read later. For loops that are too long, the first and the last iterations are evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from stepscope.viewer.kernel_source.cpp_tokens import NotUnderstoodError
from stepscope.viewer.kernel_source.element_access import Axis, ElementAccess
from stepscope.viewer.kernel_source.index_values import names_in, values_of

if TYPE_CHECKING:
    import numpy as np

    Numbers = np.ndarray[Any, np.dtype[np.int64]]

Meeting = Literal["same", "apart", "meet", "unknown"]
_MOST_PLACES = 1 << 17
_LONGEST = 1 << 60
_SIZE = re.compile(r"ks\d+$|\w*numel$")
_SIZES = ((5, 7, 6, 4, 9, 8), (8, 3, 4, 7, 6, 5), (16, 16, 16, 16, 16, 16))
"""Values that unknown sizes are given, one row after the other. An overlap must come up with each row."""


def meeting(read: ElementAccess, write: ElementAccess, shift: int = 0) -> Meeting:
    """Return how a read and a write of one loop nest meet on the same memory.

    They access the same element in each iteration ("same"), the read never finds an element that was overwritten
    before ("apart"), it does ("meet"), or this is not known. `shift` is the element behind the written pointer at
    which the pointer that is read begins.
    """
    if read.text == write.text and not shift:
        return "same"
    if read.index is None or write.index is None or not (read.is_sure and write.is_sure):
        return "unknown"
    common = _common(read.axes, write.axes)
    if not common:
        return "apart"
    if read.pointer == write.pointer and len(common) < max(len(read.axes), len(write.axes)):
        return "unknown"  # it may read what the loop before it has written
    sizes = sorted(name for one in (read, write) for name in _names(one) if _SIZE.match(name))
    try:
        found = {
            _numeric(read, write, shift, common, dict(zip(dict.fromkeys(sizes), numbers, strict=False)))
            for numbers in (_SIZES if sizes else ((),))
        }
    except (NotUnderstoodError, OverflowError, RecursionError):
        return "unknown"
    return found.pop() if len(found) == 1 and (not sizes or found == {"meet"}) else "unknown"


def _common(a: tuple[Axis, ...], b: tuple[Axis, ...]) -> tuple[Axis, ...]:
    found = []
    for one, other in zip(a, b, strict=False):
        if one is not other:
            break
        found.append(one)
    return tuple(found)


def _names(place: ElementAccess) -> set[str]:
    expressions = [place.index, *(part for axis in place.axes for part in (axis.begin, axis.end, axis.step))]
    return set().union(*(names_in(one, place.meanings) for one in expressions if one is not None))


def _numeric(
    read: ElementAccess, write: ElementAccess, shift: int, common: tuple[Axis, ...], sizes: Mapping[str, int]
) -> Meeting:
    import numpy as np  # not needed by most traces

    a, b = (_Evaluated.of(place, common, sizes) for place in (read, write))
    if a is None or b is None:
        return "apart"
    elements, at = np.unique(np.concatenate([a.elements + shift, b.elements]), return_inverse=True)
    read_at, written_at = at[: len(a.elements)], at[len(a.elements) :]
    for ours, theirs, any_order in ((a.times, b.times, False), (a.parallel, b.parallel, True)):
        last_read = np.full(len(elements), -1)
        np.maximum.at(last_read, read_at, ours)
        first_written = np.full(len(elements), np.iinfo(np.int64).max)
        np.minimum.at(first_written, written_at, theirs)
        if bool((first_written < last_read).any()):
            return "meet"
        if any_order:
            first_read = np.full(len(elements), np.iinfo(np.int64).max)
            np.minimum.at(first_read, read_at, ours)
            last_written = np.full(len(elements), -1)
            np.maximum.at(last_written, written_at, theirs)
            if bool(((first_read < last_written) & (last_read >= 0)).any()):
                return "meet"
    return "apart" if a.is_all and b.is_all else "unknown"


@dataclass(frozen=True)
class _Evaluated:
    elements: Numbers
    times: Numbers
    """The iteration of the common loops that accesses each element."""
    parallel: Numbers
    """The iteration of those common loops that may run in any order."""
    is_all: bool

    @classmethod
    def of(cls, place: ElementAccess, common: tuple[Axis, ...], sizes: Mapping[str, int]) -> _Evaluated | None:
        """Return the elements of an access, or None if a loop has no iterations. Raises NotUnderstoodError."""
        import numpy as np

        known: dict[str, Any] = dict(sizes)
        spans = [
            tuple(_whole(values_of(part, known, place.meanings)) for part in (axis.begin, axis.end, axis.step))
            for axis in place.axes
        ]
        if any(begin >= end for begin, end, _ in spans):
            return None
        is_long = prod(end - begin for begin, end, _ in spans) > _LONGEST
        if is_long or any(step <= 0 or abs(begin) > _LONGEST for begin, _, step in spans):
            raise NotUnderstoodError
        most = int(_MOST_PLACES ** (1 / len(spans)))
        is_all = prod(end - begin for begin, end, _ in spans) <= _MOST_PLACES
        lines = [_some(begin, end, end - begin if is_all else most) for begin, end, _ in spans]
        grids = np.meshgrid(*lines, indexing="ij", sparse=True)
        shape = tuple(len(line) for line in lines)
        times = parallel = np.zeros(shape, np.int64)
        for axis, grid, (begin, end, step) in zip(place.axes, grids, spans, strict=True):
            known[axis.variable] = grid
            if axis in common:
                turns = -(-(end - begin) // step)
                turn = (grid - begin) // step
                times = times * turns + turn
                if axis.is_parallel:
                    parallel = parallel * turns + turn
        assert place.index is not None
        elements = np.broadcast_to(np.asarray(values_of(place.index, known, place.meanings), np.int64), shape)
        return cls(elements.ravel(), times.ravel(), parallel.ravel(), is_all)


def _whole(value: Any) -> int:
    if not isinstance(value, int):
        raise NotUnderstoodError
    return value


def _some(begin: int, end: int, most: int) -> Numbers:
    """Return the numbers from `begin` up to `end`, or the first and the last of them if there are more than `most`."""
    import numpy as np

    if end - begin <= most:
        return np.arange(begin, end)
    half = max(most // 2, 1)
    return np.concatenate([np.arange(begin, begin + half), np.arange(end - half, end)])
