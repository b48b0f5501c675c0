"""Records of launches: which calls and launches ran and when, and what the arguments of a launch were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

UNRECORDED = "not recorded"
"""`TensorMeta.dtype` from the first call on whose arguments are not written down any more."""


@dataclass(frozen=True)
class TensorMeta:
    """What an argument was at run time. For a list argument one entry per tensor in it."""

    argument: int
    """Index into the site's `arguments`."""
    dtype: str
    """``float32``; the Python type's name (``int``) for what is no tensor; ``not recorded``: from this call on, the
    site's arguments are not written down any more."""
    size: list[int]
    stride: list[int]
    device: str
    offset: int | None
    """Storage offset in elements."""
    storage_bytes: int | None
    item: int | None = None
    """Position within a list argument."""
    storage: int | None = None
    """Address of the storage: arguments of one launch with the same one share memory."""


@dataclass(frozen=True)
class Tensors:
    """Arguments of one launch site as they were seen. Sent for the first call, and again for dtypes, sizes or strides
    not seen before. Addresses, offsets and storages are those of this call."""

    KIND: ClassVar[str] = "tensors"

    graph: int
    call: int
    site: int
    tensors: list[TensorMeta]


@dataclass(frozen=True)
class SameTensors:
    """Sizes that were seen before have come back: from this call on, until more is said of a launch site, the arguments
    that `Tensors` of an earlier call tell of are again as they say. Addresses, offsets and storages may be others."""

    KIND: ClassVar[str] = "same_tensors"

    graph: int
    call: int
    site: int
    """It holds of this launch site and of those with a higher number."""
    argument: int
    """Of `site` it holds from this argument on."""
    of: int
    """The earlier call."""


@dataclass(frozen=True)
class Calls:
    """Graph calls of a batch, as columns. A call is one run of one function of a wrapper."""

    call: list[int]
    graph: list[int]
    function: list[int]
    """Index into `Graph.functions`."""
    step: list[int]
    thread: list[int]
    parent: list[int | None]
    """The call inside which it ran, for subgraphs and partitions."""
    start_ns: list[int]
    duration_ns: list[int]
    launches: list[int]
    """How many rows of the batch's `site` belong to it."""
    state: list[str]
    """``ok``; ``raised`` (an exception left it; its last launch did not return); ``captured`` (recorded into a CUDA
    graph: nothing ran yet); ``replayed`` (by a CUDA graph: its launches carry the times of the whole replay);
    ``unfinished`` (it still ran when recording ended, perhaps on another thread: what it had done until then);
    ``printed`` (read from text without times: starts and durations are positions in it)."""


@dataclass(frozen=True)
class Launches:
    """A batch of launches, as columns; rows of a call follow one another in order of execution."""

    KIND: ClassVar[str] = "launches"

    calls: Calls
    site: list[int]
    start_ns: list[int]
    end_ns: list[int]
    """When the launch returned to the host; -1: it did not; -2: it did, and nobody knows when."""


@dataclass(frozen=True)
class DeviceTimes:
    """Times on the device of launches, as columns. They come later than the launches: nothing waits for the device."""

    KIND: ClassVar[str] = "device_times"

    call: list[int]
    launch: list[int]
    """Position of the launch within its call, from 0."""
    duration_ns: list[int]
    how: Literal["events", "timestamps", "profiler"]
    """``events`` around the launch; ``timestamps`` of the statistics before and after it, gaps included; ``profiler``:
    PyTorch's, of the CPU for a kernel that runs there."""


@dataclass(frozen=True)
class TunedKernels:
    """With which configuration Triton kernels of a graph run: the only one, or what autotuning has chosen."""

    KIND: ClassVar[str] = "tuned_kernels"

    graph: int
    kernel: list[str]
    config: list[dict[str, int]]
    """Block sizes, ``num_warps`` and ``num_stages``; numbers only."""
