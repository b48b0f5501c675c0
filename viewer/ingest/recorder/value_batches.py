"""Collects the statistics of one log: layouts, batches of values, times on the device, saved tensors.

Without numpy until the first values: a log without them has no need of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

from stepscope.tracer.schema.records import DeviceTimes, Graph, SavedTensor, ValueLayout, Values
from stepscope.viewer.ingest.damage import Damage
from stepscope.viewer.ingest.decode import BadPayload
from stepscope.viewer.ingest.rows import Rows

if TYPE_CHECKING:
    from stepscope.viewer.ingest.recorder.launch_columns import Places
    from stepscope.viewer.ingest.recorder.value_columns import Batch

_NUMBERS = "layout", "graph", "first"
"""Fields of a layout that are no columns."""


@dataclass(frozen=True)
class Place:
    """Where in a log a record stands."""

    line: int
    byte: int


class ValueBatches:
    """Takes in records in the order of the log; `finish` gives each row its launch."""

    def __init__(self, damage: Damage) -> None:
        self.damage = damage
        self.layouts: dict[int, ValueLayout] = {}
        self.batches: list[Batch] = []
        self.device_times: list[DeviceTimes] = []
        self.saved: list[tuple[SavedTensor, Place]] = []

    def take(self, value: DeviceTimes | ValueLayout | Values | SavedTensor, place: Place) -> None:
        """Raises BadPayload for a record that does not fit together."""
        match value:
            case DeviceTimes():
                self.add_device_times(value)
            case ValueLayout():
                self.add_layout(value, place)
            case Values():
                self.add(value, place)
            case SavedTensor():
                self.add_saved(value, place)

    def add_layout(self, layout: ValueLayout, place: Place) -> None:
        """Raises BadPayload when its columns are not of one length."""
        count = len(layout.site)
        if any(len(getattr(layout, f.name)) != count for f in fields(layout) if f.name not in _NUMBERS):
            raise BadPayload("ValueLayout has columns of unequal length")
        known = self.layouts.setdefault(layout.layout, layout)
        if known != layout:
            self.damage.add(
                "broken_values",
                f"value layout {layout.layout} is there twice; the first is kept",
                place.line,
                place.byte,
            )

    def add(self, values: Values, place: Place) -> None:
        """Raises BadPayload when its columns do not fit together."""
        from stepscope.viewer.ingest.recorder.value_columns import batch_of

        for layout in sorted(set(values.layout) - self.layouts.keys()):
            text = f"values of layout {layout}, which does not stand before them"
            self.damage.add("unknown_layout", text, place.line, place.byte)
        self.batches.append(batch_of(values, place, self.damage))

    def add_device_times(self, times: DeviceTimes) -> None:
        """Raises BadPayload when its columns are not of one length."""
        if not len(times.call) == len(times.launch) == len(times.duration_ns):
            raise BadPayload("DeviceTimes has columns of unequal length")
        self.device_times.append(times)

    def add_saved(self, saved: SavedTensor, place: Place) -> None:
        """Raises BadPayload for a file that is not below the folder of the log."""
        if not saved.file or any(not _is_below(kind(saved.file)) for kind in (PurePosixPath, PureWindowsPath)):
            raise BadPayload("SavedTensor.file is not below the folder of the log")
        self.saved.append((saved, place))

    def finish(self, rows: Rows, log: int, places: Places | None, graphs: Mapping[int, Graph]) -> None:
        """Add all rows. What belongs to no launch of the log is counted."""
        if self.batches or self.saved:
            from stepscope.viewer.ingest.recorder.value_columns import add_saved, add_values

            inputs = {number: graph.inputs for number, graph in graphs.items()}
            add_values(self, rows, log, places, inputs)
            add_saved(self.saved, rows, log, places, self.damage)


def _is_below(file: PurePosixPath | PureWindowsPath) -> bool:
    return not file.is_absolute() and not file.drive and not file.root and ".." not in file.parts
