"""Records of launches: which calls and launches ran, when, and with which arguments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from stepscope.tracer.schema.record import Record


@dataclass(frozen=True)
class TensorMeta:
    """The metadata of an argument at run time. A list argument has one entry for each tensor in it."""

    argument: int
    """The index into the site's `arguments`."""
    dtype: str
    """``float32``; the name of the Python type (``int``) for an argument that is not a tensor; ``not recorded`` if the
    site's arguments are not recorded from this call on."""
    size: list[int]
    stride: list[int]
    device: str
    offset: int | None
    """The storage offset in elements."""
    storage_bytes: int | None
    item: int | None = None
    """The position within a list argument; None for other arguments."""
    storage: int | None = None
    """The address of the storage; arguments of one launch with the same address share memory."""


@dataclass(frozen=True)
class Tensors(Record):
    """The arguments of one launch site as a call saw them. The record is written for the first call, and again for
    dtypes, sizes or strides that were not seen before, and in the call after one in which inputs of the graph shared
    storages in a way that was not seen before. Addresses, offsets and storages are those of this call."""

    KIND: ClassVar[str] = "tensors"

    graph: int
    call: int
    site: int
    tensors: list[TensorMeta]


@dataclass(frozen=True)
class SameTensors(Record):
    """Arguments are the same as in an earlier call, which has `Tensors` records. This applies from this call on, until
    another record is about the launch site. Addresses, offsets and storages may differ."""

    KIND: ClassVar[str] = "same_tensors"

    graph: int
    call: int
    site: int
    """The record is about this launch site and those with a higher number."""
    argument: int
    """For `site` itself, the record is about this argument and those after it."""
    of: int
    """The earlier call whose arguments were the same."""


@dataclass(frozen=True)
class Calls:
    """The graph calls of a batch, as columns. A call is one run of one function of a wrapper."""

    call: list[int]
    graph: list[int]
    function: list[int]
    """The index into `Graph.functions`."""
    step: list[int]
    thread: list[int]
    parent: list[int | None]
    """The call that this one is nested in, for subgraphs and partitions."""
    start_ns: list[int]
    duration_ns: list[int]
    launches: list[int]
    """The number of rows of the batch's `site` that belong to the call."""
    state: list[str]
    """``ok``: the call returned; ``raised``: an exception left it, and its last launch did not return; ``captured``:
    the call was captured into a CUDA graph, and nothing ran yet; ``replayed``: a CUDA graph ran the call, and its
    launches have the times of the whole replay; ``unfinished``: the call was still running when recording ended, and
    has the launches up to then; ``printed``: the call was read from text, and its times are positions in the text."""


@dataclass(frozen=True)
class Launches(Record):
    """A batch of launches, as columns. The rows of a call follow one another in order of execution."""

    KIND: ClassVar[str] = "launches"

    calls: Calls
    site: list[int]
    start_ns: list[int]
    end_ns: list[int]
    """When the launch returned to the host; -1 if it did not return; -2 if it returned at an unknown time."""


@dataclass(frozen=True)
class CallsInBackward(Record):
    """Calls of forward graphs that began while a backward pass ran, as activation checkpointing recomputes them. The
    record belongs to a batch of launches and is left out if there are none."""

    KIND: ClassVar[str] = "calls_in_backward"
    TABLE: ClassVar[str | None] = "calls_in_backward"

    call: list[int]


@dataclass(frozen=True)
class CallGaps(Record):
    """The time between two calls that follow one another in a thread, neither of them nested in another one, as
    columns. The record belongs to a batch of launches."""

    KIND: ClassVar[str] = "call_gaps"
    TABLE: ClassVar[str | None] = "call_gaps"

    call: list[int]
    """The later call."""
    before: list[int]
    """The earlier call, which may be a part of no record."""
    own_ns: list[int]
    """The time that the recorder took."""
    cpu_ns: list[int]
    """The time for which the thread computed; it waited for the rest, or the machine ran other threads."""
    before_cpu_ns: list[int] = field(default_factory=list)
    """The time for which the thread computed in the earlier call, with what the recorder did. Older logs have an empty
    list."""


@dataclass(frozen=True)
class DeviceTimes(Record):
    """Durations of launches on the device, as columns. They are written later than the launches, since nothing waits
    for the device."""

    KIND: ClassVar[str] = "device_times"

    call: list[int]
    launch: list[int]
    """The position of the launch within its call, counted from 0."""
    duration_ns: list[int]
    how: Literal["events", "timestamps", "profiler"]
    """``events``: CUDA events around the launch; ``timestamps``: times of the statistics before and after the launch,
    with the gaps between; ``profiler``: PyTorch's profiler, with CPU times for a kernel that runs on the CPU."""


@dataclass(frozen=True)
class TunedKernels(Record):
    """The configurations of a graph's Triton kernels: the only one of each kernel, or the choice of autotuning."""

    KIND: ClassVar[str] = "tuned_kernels"

    graph: int
    kernel: list[str]
    config: list[dict[str, int]]
    """Block sizes, ``num_warps`` and ``num_stages``; other settings are left out."""
