"""Collects the times of launches on the device. It needs no numpy, because many logs have none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stepscope.tracer.schema.launches import DeviceTimes
from stepscope.viewer.ingest.decode import BadPayload
from stepscope.viewer.ingest.long_columns import LongColumn

if TYPE_CHECKING:
    from stepscope.viewer.ingest.columns import Ints

_AT_ONCE = 1 << 17


class DeviceTimeColumns:
    """The records of one log, joined."""

    def __init__(self) -> None:
        self._call, self._launch, self._duration_ns = LongColumn(), LongColumn(), LongColumn()

    def __len__(self) -> int:
        return len(self._call)

    def add(self, times: DeviceTimes) -> None:
        """Add a record. Raises BadPayload if its columns differ in length."""
        if not len(times.call) == len(times.launch) == len(times.duration_ns):
            raise BadPayload("DeviceTimes has columns of unequal length")
        self._call.extend(times.call)
        self._launch.extend(times.launch)
        self._duration_ns.extend(times.duration_ns)

    def parts(self) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Yield the numbers of calls in the log, the positions of their launches, and the times, in parts."""
        call, launch, duration_ns = (column.ints() for column in (self._call, self._launch, self._duration_ns))
        for start in range(0, len(self), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            yield call.values[part], launch.values[part], duration_ns.values[part]
            for column in (call, launch, duration_ns):
                column.let_go()
