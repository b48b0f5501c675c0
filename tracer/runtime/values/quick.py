"""Loads the compiled code that reads tensors at a point of a wrapper (readings.cpp), and joins its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from torch import get_num_threads

from stepscope.tracer.inductor.stats_toolchain import function_mode_active
from stepscope.tracer.runtime import compiled
from stepscope.tracer.runtime.stats import ROW
from stepscope.tracer.runtime.stats.cpu import CpuReader
from stepscope.tracer.runtime.stats.cuda import CudaReader
from stepscope.tracer.runtime.values.rows import Reading, RowGroup

SOURCE = Path(__file__).with_name("readings.cpp")
MOST_GROUPS = 4096
"""Maximum number of sequences of readings remembered."""
TOGETHER = RowGroup(())
"""Stands for the rows of a block of several readings until `Groups.of` is asked for them."""


class Point(Protocol):
    """What is the same in each reading of a point."""


class CallReader(Protocol):
    """Reads the tensors at the points of one call."""

    taken_ns: int

    def __call__(self, call: Any, place: int, values: Sequence[Any], /) -> None: ...


def call_reader_type() -> Callable[..., CallReader] | None:
    """Return the compiled type, or None if it cannot be compiled.

    Its arguments are a list with the `Point` of each place or None, a function that is called with (call, place,
    values) where there is none and returns one or has read the tensors itself, a function that is told (place, error),
    and the readings of the call.
    """
    library = _library()
    made: Callable[..., CallReader] | None = None if library is None else library.CallReader
    return made


def point_of(reader: object, group: RowGroup) -> Point | None:
    """Return the point that reads like `reader`, whose rows are `group`; None if only Python can."""
    if isinstance(reader, CudaReader):
        return reader.point(group)
    if not isinstance(reader, CpuReader) or (library := _library()) is None:
        return None
    made: Point = library.Point(
        group, reader, reader.kernel_address, reader.address, reader.tensors, reader.has_big, reader.keeps_gil
    )
    return made


class Groups:
    """Remembers what rows the blocks of several readings have. The caller must have acquired a lock."""

    def __init__(self) -> None:
        self._known: dict[tuple[RowGroup, ...], RowGroup] = {}

    def of(self, readings: Sequence[Reading]) -> list[Reading]:
        """Return readings with the rows of their blocks."""
        return [(self._of(block) if group is TOGETHER else group, block) for group, block in readings]

    def _of(self, block: Any) -> RowGroup:
        key = tuple(block.groups)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MOST_GROUPS:
                self._known.clear()
            found = self._known[key] = RowGroup(row for group in key for row in group.rows)
        return found


def _library() -> Any:
    try:
        return compiled.load("stepscope_readings", SOURCE, _set_up)
    except RuntimeError:
        return None


def _set_up(library: Any) -> None:
    library.set_up(ROW.itemsize, _to_rows, TOGETHER, function_mode_active, get_num_threads)


def _to_rows(data: bytes) -> npt.NDArray[Any]:
    return np.frombuffer(data, ROW)
