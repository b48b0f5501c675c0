"""Collects the work of devices that PyTorch's profiler saw. It needs no numpy, because many logs have none."""

from __future__ import annotations

from stepscope.tracer.schema.profiles import DeviceWork
from stepscope.viewer.ingest.decode import BadPayload

COLUMNS = "name", "device", "stream", "start_ns", "duration_ns", "thread", "enqueued_ns", "call", "launch"
_MOST_DEVICES, _MOST_STREAMS = 1 << 16, 1 << 31


class DeviceWorkBatches:
    """The records of one log."""

    def __init__(self) -> None:
        self.batches: list[DeviceWork] = []

    def __len__(self) -> int:
        return sum(len(batch.name) for batch in self.batches)

    def add(self, batch: DeviceWork) -> None:
        """Add a record. Raises BadPayload if it is inconsistent."""
        if len({len(getattr(batch, column)) for column in COLUMNS}) != 1:
            raise BadPayload("DeviceWork has columns of unequal length")
        if any(not 0 <= name < len(batch.names) for name in batch.name):
            raise BadPayload("DeviceWork has an index without a name")
        if not all(0 <= device < _MOST_DEVICES for device in batch.device):
            raise BadPayload("DeviceWork has an index that no device has")
        if not all(0 <= stream < _MOST_STREAMS for stream in batch.stream):
            raise BadPayload("DeviceWork has a number that no stream has")
        if batch.ended_ns < batch.began_ns or any(duration < 0 for duration in batch.duration_ns):
            raise BadPayload("DeviceWork has a negative duration")
        self.batches.append(batch)

    @property
    def windows(self) -> list[tuple[int, int]]:
        """Return when the profiler began and stopped, each time that it ran."""
        return sorted({(batch.began_ns, batch.ended_ns) for batch in self.batches})


def kind_of(name: str) -> str:
    """Return whether a piece of work is a kernel, a copy, a fill or a collective."""
    if name.startswith("Memcpy"):
        return "copy"
    if name.startswith("Memset"):
        return "fill"
    return "collective" if name.startswith("nccl") else "kernel"
