"""Rows about steps: the spans, calls and launches of a window, as the timeline shows them."""

from __future__ import annotations

from dataclasses import dataclass, field

from stepscope.viewer.graphs.rows import GraphRow, SiteRow, SourceLine
from stepscope.viewer.values.rows import ArgumentValues


@dataclass(frozen=True)
class Span:
    name: str
    compile_id: str | None
    depth: int
    start_ns: int
    """Time on the run's monotonic clock."""
    duration_ns: int


@dataclass(frozen=True)
class CallRow:
    call: int
    graph: int
    graph_label: str
    """Label such as ``0/0 forward``; for subgraphs with the function: ``0/0 forward · true_graph_0``."""
    function: str
    parent: int | None
    depth: int
    thread: int
    start_ns: int
    duration_ns: int | None
    """None if it was not recorded, as in the output of a debug printer."""
    launches: int
    state: str


@dataclass(frozen=True)
class LaunchColumns:
    """Launches of a window as parallel columns. A bin that merges several narrow launches has `count` > 1."""

    launch: list[int]
    """Id of the launch; for a bin the longest one in it."""
    site: list[int]
    thread: list[int]
    start_ns: list[int]
    """Time since the window's `start_ns`."""
    duration_ns: list[int]
    """-1 if the launch did not return, -2 if it returned at an unknown time."""
    count: list[int]
    health: list[int] = field(default_factory=list)
    """Index into `HEALTH` of the worst output, -1 without values; empty if the run recorded none."""
    verdict: list[int] = field(default_factory=list)
    """Index into `VERDICTS` of the judge's worst verdict, -1 without one; empty if the step was not judged."""


@dataclass(frozen=True)
class StreamLane:
    """A stream of a device, by the numbers that CUDA gives them."""

    device: int
    stream: int


@dataclass(frozen=True)
class Timeline:
    log: int
    step: int
    start_ns: int
    end_ns: int
    window_start_ns: int
    window_end_ns: int
    threads: list[int]
    spans: list[Span]
    calls: list[CallRow]
    launches: LaunchColumns
    sites: dict[int, dict[str, str]]
    """Site -> {kernel, kind} for all sites in `launches`."""
    total_launches: int
    streams: list[StreamLane] = field(default_factory=list)
    """The streams that PyTorch's profiler saw, in the order of their first work."""
    work: LaunchColumns | None = None
    """What ran on `streams` in the window, also for other steps; None if the step was not profiled.

    `thread` is the index of the stream, `site` that of the name in `work_names`, and `launch` is -1 for work outside
    of recorded launches."""
    work_names: list[dict[str, str]] = field(default_factory=list)
    """{kernel, kind} of the work: its name, and the kind of its launch, or what it is outside of launches."""


@dataclass(frozen=True)
class SiteSum:
    """The launches of one site in a span of time."""

    site: int
    kernel: str
    kind: str
    lines: list[SourceLine]
    """The lines of model source that it computes."""
    launches: int
    timed: int
    """Number of launches whose host time is known."""
    duration_ns: int | None
    """Host time inside the span; None if it is known for none of them."""
    device_duration_ns: int | None
    """Device time of these launches; None if it was not measured."""


@dataclass(frozen=True)
class AreaSums:
    """The launches of a span of a step by site, those with the most host time first."""

    log: int
    step: int
    start_ns: int | None
    """The span on the run's monotonic clock; None for the whole step."""
    end_ns: int | None
    sites: list[SiteSum]


@dataclass(frozen=True)
class ProfiledOperatorRow:
    """An operator that PyTorch's profiler saw during a launch."""

    name: str
    start_ns: int
    """Time after the start of the launch."""
    duration_ns: int
    depth: int
    """Number of operators of the launch that called it."""


@dataclass(frozen=True)
class DeviceWorkRow:
    """A kernel, a copy or a fill that PyTorch's profiler saw on a device for a launch."""

    name: str
    kind: str
    device: int
    stream: int
    start_ns: int
    """Time after the start of the launch on the host."""
    duration_ns: int


@dataclass(frozen=True)
class LaunchDetail:
    launch: int
    log: int
    rank: int | None
    step: int
    ordinal: int
    """Position in its step, from 1."""
    of: int
    """Number of launches of the step."""
    thread: int
    call: int
    graph: GraphRow
    site: SiteRow
    start_ns: int
    step_offset_ns: int
    returned: bool
    duration_ns: int | None
    device_duration_ns: int | None
    previous: int | None
    next: int | None
    previous_same: int | None
    """Launch of the same kernel before this one in its step; `next_same` is the one after it."""
    next_same: int | None
    written_by: dict[int, int | None]
    """Argument -> the launch of this call that wrote its buffer last; None if it is an input or unknown."""
    read_by: dict[int, list[int]]
    """Argument written here -> the launches of this call that read its buffer before it is overwritten."""
    read_bytes: int | None
    """Bytes of the tensors that it reads; None if the size of one is unknown."""
    written_bytes: int | None
    config: dict[str, int]
    """Block sizes, ``num_warps`` and ``num_stages`` of a Triton kernel; empty for others or if unknown."""
    code: str | None
    """Generated code: the kernel's definition and the lines around the launch, cut from the wrapper."""
    code_first_line: int | None
    values: list[ArgumentValues] = field(default_factory=list)
    """Values per argument of the site; empty if the run recorded none."""
    symbols: dict[str, int | float] = field(default_factory=dict)
    """Values in this call of the numbers that the generated code computes."""
