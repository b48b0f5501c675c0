"""Rows about memory that grows from step to step, with sizes in bytes and None for unknown values."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.viewer.graphs.rows import SourceLine


@dataclass(frozen=True)
class LeftBehindRow:
    """A storage that a call of an earlier step created and that was alive when the recording ended."""

    log: int
    call: int
    storage: int
    step: int
    graph: int
    function: str
    buffer: str
    kind: str
    storage_bytes: int
    device: str
    site: int | None
    holders: list[str]
    freed_by_collection: bool | None
    tensor_bytes: int | None
    """Bytes of the elements that the tensors show which were left in the storage."""
    source: SourceLine | None


@dataclass(frozen=True)
class GrowthRow:
    """A buffer that each of the last steps left behind."""

    log: int
    graph: int
    function: str
    buffer: str
    kind: str
    steps: list[int]
    """Last steps, each of which left the buffer alive."""
    storages: int
    storage_bytes: int
    bytes_per_step: int
    holders: list[str]
    freed_by_collection: bool | None
    tensor_bytes: int | None
    """Bytes of the elements that the tensors show which were left in the last of the storages."""
    source: SourceLine | None
    kernel: str | None
    site: int | None
    launch: int | None
    """Last launch that created the buffer."""


@dataclass(frozen=True)
class LeakedBuffer:
    growth: GrowthRow
    graph_label: str
    program: str | None
    """Name in the user's program, such as ``output 1``; None if it has none or it is unknown."""


@dataclass(frozen=True)
class LeakedStorage:
    left: LeftBehindRow
    launch: int | None
    """Launch that wrote it first; None if it is unknown."""
    program: str | None
    """Name in the user's program; None if it has none or it is unknown."""


@dataclass(frozen=True)
class Leak:
    """Buffers that the same objects hold and that each of the last steps left behind."""

    name: str
    """Graph and buffer of the largest, such as ``14.buf0``, which an address names."""
    log: int
    holders: list[str]
    freed_by_collection: bool | None
    bytes_per_step: int
    storage_bytes: int
    first_step: int
    last_step: int
    buffers: list[LeakedBuffer]
    """Most bytes per step first."""
    storages: list[LeakedStorage]
    """Largest first, at most some of them."""
    all_storages: int
    steps: list[int]
    """All steps of the log; the columns below have one entry for each."""
    live_bytes: list[int | None]
    """Live bytes at the end of the step, of all storages that compiled calls have used."""
    held_bytes: list[int]
    """Bytes of this leak that steps until then have left."""
    left_bytes: list[int]
    """Bytes of this leak that the step left."""
