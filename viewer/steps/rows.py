"""Frozen rows about steps: spans, calls and launches of a window, as the timeline shows them."""

from __future__ import annotations

from dataclasses import dataclass, field

from stepscope.viewer.graphs.rows import GraphRow, SiteRow
from stepscope.viewer.values.rows import ArgumentValues


@dataclass(frozen=True)
class Span:
    name: str
    compile_id: str | None
    depth: int
    start_ns: int
    """On the run's monotonic clock."""
    duration_ns: int


@dataclass(frozen=True)
class CallRow:
    call: int
    graph: int
    graph_label: str
    """E.g. ``0/0 forward``; with the function for subgraphs: ``0/0 forward · true_graph_0``."""
    function: str
    parent: int | None
    depth: int
    thread: int
    start_ns: int
    duration_ns: int | None
    """None: not recorded, as of what a debug printer told."""
    launches: int
    state: str


@dataclass(frozen=True)
class LaunchColumns:
    """Launches of a window, as parallel columns; a bin of several launches too narrow to draw has `count` > 1."""

    launch: list[int]
    """For a bin: the longest launch in it."""
    site: list[int]
    thread: list[int]
    start_ns: list[int]
    """Relative to the window's `start_ns`."""
    duration_ns: list[int]
    """-1: the launch did not return; -2: it did, and nobody knows when."""
    count: list[int]
    health: list[int] = field(default_factory=list)
    """Index into `HEALTH` of the worst output, -1: no values; empty when the run recorded none."""


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
    """site -> {kernel, kind} of every site in `launches`."""
    total_launches: int


@dataclass(frozen=True)
class LaunchDetail:
    launch: int
    log: int
    rank: int | None
    step: int
    ordinal: int
    """Position in its step, from 1."""
    of: int
    """How many launches the step has."""
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
    written_by: dict[int, int | None]
    """argument -> the launch of this call that wrote its buffer last, None: came in from outside or not known."""
    read_by: dict[int, list[int]]
    """argument written here -> launches of this call that read its buffer before it is written again."""
    config: dict[str, int]
    """Block sizes, ``num_warps`` and ``num_stages`` of a Triton kernel; empty: of another, or the log does not tell."""
    code: str | None
    """The generated code: the kernel's definition and the launch statement's line, cut from the wrapper source."""
    code_first_line: int | None
    values: list[ArgumentValues] = field(default_factory=list)
    """One per argument of the site; empty when the run recorded no values."""
    symbols: dict[str, int | float] = field(default_factory=dict)
    """What the numbers that the generated code computes were in this call."""
