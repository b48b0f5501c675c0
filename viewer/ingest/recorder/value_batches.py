"""Collects the statistics of one log: layouts, batches of values, device times and saved tensors.

numpy is imported only with the first values, because a log without them does not need it.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

from stepscope.tracer.schema.launches import DeviceTimes
from stepscope.tracer.schema.statistics import Values
from stepscope.tracer.schema.values import SavedTensor, ValueLayout
from stepscope.viewer.ingest.damage import Damage, RecordPlace
from stepscope.viewer.ingest.decode import BadPayload
from stepscope.viewer.ingest.recorder.device_times import DeviceTimeColumns

if TYPE_CHECKING:
    from stepscope.viewer.ingest.recorder.value_batch import ValueColumns
    from stepscope.viewer.ingest.spill import Spill

_NUMBERS = "layout", "graph", "first"
"""Fields of a layout that are not columns."""


class ValueRecords:
    """Collects records in the order of the log."""

    def __init__(self, damage: Damage) -> None:
        self.damage = damage
        self.layouts: dict[int, ValueLayout] = {}
        self.batches: list[ValueColumns] = []
        self.spill: Spill | None = None
        self.device_times = DeviceTimeColumns()
        self.saved: list[tuple[SavedTensor, RecordPlace]] = []

    def take(self, value: DeviceTimes | ValueLayout | Values | SavedTensor, place: RecordPlace) -> None:
        """Add a record. Raises BadPayload if it is inconsistent."""
        match value:
            case DeviceTimes():
                self.device_times.add(value)
            case ValueLayout():
                self.add_layout(value, place)
            case Values():
                self.add(value, place)
            case SavedTensor():
                self.add_saved(value, place)

    def add_layout(self, layout: ValueLayout, place: RecordPlace) -> None:
        """Add a layout. Raises BadPayload if its columns differ in length."""
        count = len(layout.site)
        if any(len(getattr(layout, f.name)) != count for f in fields(layout) if f.name not in _NUMBERS):
            raise BadPayload("ValueLayout has columns of unequal length")
        known = self.layouts.setdefault(layout.layout, layout)
        if known != layout:
            self.damage.add(
                "broken_values",
                f"value layout {layout.layout} exists twice; the first is kept",
                place.line,
                place.byte,
            )

    def add(self, values: Values, place: RecordPlace) -> None:
        """Add values. Raises BadPayload if their columns are inconsistent."""
        from stepscope.viewer.ingest.recorder.value_batch import batch_of
        from stepscope.viewer.ingest.spill import Spill

        for layout in sorted(set(values.layout) - self.layouts.keys()):
            text = f"values of layout {layout}, which does not precede them"
            self.damage.add("unknown_layout", text, place.line, place.byte)
        self.spill = self.spill or Spill()
        self.batches.append(batch_of(values, place, self.damage, self.spill))

    def add_saved(self, saved: SavedTensor, place: RecordPlace) -> None:
        """Add a saved tensor. Raises BadPayload if its file is not below the folder of the log."""
        if not saved.file or any(not _is_below(kind(saved.file)) for kind in (PurePosixPath, PureWindowsPath)):
            raise BadPayload("SavedTensor.file is not below the folder of the log")
        self.saved.append((saved, place))


def _is_below(file: PurePosixPath | PureWindowsPath) -> bool:
    return not file.is_absolute() and not file.drive and not file.root and ".." not in file.parts
