"""Rows about values: statistics of tensors, kernels, buffers, the heat map and curves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from stepscope.tracer.schema.statistics import Statistics
from stepscope.viewer.graphs.rows import GraphRow, MemoryStatementRow, ProgramName, SiteRow

Health = Literal["nan", "positive_infinity", "negative_infinity", "extreme", "zero", "finite", "not_recorded"]
"""Classes of health, from worst to best. ``extreme``: near overflow or subnormal; ``zero``: every element is zero."""
HEALTH: tuple[Health, ...] = get_args(Health)
HEALTH_SIGNS: dict[Health, tuple[str, str]] = {
    "nan": ("✖", "NaN"),
    "positive_infinity": ("▲", "+inf"),
    "negative_infinity": ("▼", "−inf"),
    "extreme": ("◆", "extreme"),
    "zero": ("0", "all zero"),
    "finite": ("", "finite"),
    "not_recorded": ("", "not recorded"),
}
"""The sign and the label of each class."""
Element = float | int | bool | str
"""An element; a str is an integer beyond 2**53, ``nan``, ``inf`` or ``-inf``."""


@dataclass
class ValuePlace:
    """When a tensor was read, and how much of it."""

    value: int
    launch: int
    """Launch at which it was read: for `before`, often the earlier one that wrote it."""
    site: int
    argument: int
    item: int | None
    part: str | None
    moment: str
    dtype: str
    numel: int
    looked_at: int
    """Number of elements read; if it is less than `numel`, they are a strided sample."""
    skipped: str | None
    """Why it has no statistics; then they are all None."""


@dataclass(frozen=True)
class Reading:
    """A reading of an argument at another launch."""

    log: int
    step: int
    launch: int
    name: str


@dataclass
class ValueRow(Statistics, ValuePlace):
    """Statistics of a tensor before or after a launch."""

    first_bad: int | None
    """Flat index of the first NaN or infinity."""
    first_bad_index: list[int] | None
    """The same as an index into each dimension, where the tensor's size is known."""
    health: Health
    """The worst class that any element is in."""
    at_least: bool = False
    """Whether the numbers of NaN and infinities are lower bounds."""
    elements: list[Element] | None = None
    """All elements in row-major order; None if they were not kept."""
    digest: str | None = None
    """The digest of the bits that were read, 16 hexadecimal digits; None if the log has none."""
    unchanged_since: Reading | None = None
    """The first of the readings of this argument that, without one between them that differs, had the same bits."""
    equal_to: Reading | None = None
    """The latest earlier reading of another argument that had the same bits, unless all elements are equal."""


@dataclass(frozen=True)
class ArgumentValues:
    """Statistics of an argument before and after a launch."""

    argument: int
    before: list[ValueRow]
    """One row per tensor and part. It is empty if the memory was uninitialised or the values were not recorded."""
    after: list[ValueRow]
    """Rows after the launch; empty if the launch does not write the argument."""
    saved: list[SavedTensorRow]


@dataclass(frozen=True)
class SavedTensorRow:
    tensor: int
    launch: int
    argument: int
    item: int | None
    moment: str
    file: str
    dtype: str
    size: list[int]
    tensor_bytes: int
    sha256: str
    log: int | None = None
    """Log to whose folder `file` is relative."""


@dataclass(frozen=True)
class Spread:
    """Range of one statistic of an argument over all launches of a site."""

    name: str
    """Name of the statistic, ``numel`` or ``size``."""
    low: Any
    high: Any
    values: int
    """Number of distinct values."""


@dataclass(frozen=True)
class KernelArgument:
    """Statistics of an argument before or after all launches of a site."""

    log: int
    site: int
    argument: int
    item: int | None
    part: str | None
    name: str
    role: str
    buffer: str | None
    moment: str
    rows: int
    health: Health
    varies: list[Spread]
    never: list[Spread]
    """Statistics that were the same at every launch."""


@dataclass(frozen=True)
class KernelLaunch:
    launch: int
    log: int
    step: int
    site: int
    graph_label: str
    start_ns: int
    duration_ns: int | None
    device_duration_ns: int | None
    health: Health
    returned: bool
    graph: int | None = None


@dataclass(frozen=True)
class BufferRow:
    """A buffer of a graph: an allocation or an input, under all names of its memory."""

    graph: int
    graph_label: str
    buffer: str
    is_input: bool
    written_by: list[str]
    """Kernels in the order of their launches."""
    read_by: list[str]
    dtype: str | None
    size: list[int] | None
    versions: int | None
    """Number of its value rows; None if the trace has no values."""
    health: Health
    program: ProgramName | None = None
    """What the program calls it; None if the log does not tell, or if it exists only inside the graph."""


@dataclass(frozen=True)
class BufferDetail:
    row: BufferRow
    log: int
    limit: float | None
    """Largest finite value of its dtype; None if it has no limit or is unknown."""
    versions: list[ValueRow]
    """Chosen versions in order of time."""
    steps: list[int]
    """Step of each of `versions`."""
    start_ns: list[int]
    """Start of the launch of each of `versions`, relative to the earliest."""
    kernels: list[str]
    """Kernel of each of `versions`."""
    names: list[str]
    """Buffer that had the memory at each of `versions`; another one after each reuse."""
    total_versions: int
    memory: list[MemoryStatementRow]
    sites: list[SiteRow]
    """Launch sites that use it, in order."""


@dataclass(frozen=True)
class HeatMap:
    """A window of launch sites x steps, coloured by health. If there are too many, a cell joins neighbours.

    `cells[row][column]` is an index into `classes`, that of the worst output in it; -1: not recorded.
    """

    log: int
    graphs: list[GraphRow]
    sites: list[int]
    """First launch site of each row, in order of first execution."""
    kernels: list[str]
    graph_of: list[int]
    joined_sites: list[int]
    """Number of launch sites that each row joins."""
    first_site: int
    """Position of the first row's site in the order of first execution, from 0."""
    total_sites: int
    steps: list[int]
    """First step of each column."""
    last_steps: list[int]
    joined_steps: list[int]
    total_steps: int
    classes: list[str]
    cells: list[list[int]]
    launches: list[list[int]]
    """Worst launch of each cell, -1 if there is none. It is empty on served pages, which look it up on a click."""
    launch_steps: list[list[int]]
    """Step of each of `launches`."""
    moves: dict[str, dict[str, int]]
    """Parameters of the addresses of neighbouring windows, by label."""


@dataclass(frozen=True)
class MagnitudeRow:
    """A tensor whose magnitude a map shows."""

    name: str
    """The program's name of a parameter, or of the one whose gradient this is; of an output, the nodes that it results
    from and its buffer."""
    site: int
    """The launch site that read or wrote it first."""
    argument: int
    graph: int
    kernel: str
    buffer: str


@dataclass(frozen=True)
class MagnitudeMap:
    """A window of tensors of a kind x steps, with a statistic of each cell. If there are too many steps, a column joins
    neighbours.

    `cells[row][column]` is an index into `classes`, that of the worst reading in it; -1: not recorded.
    """

    log: int
    kind: str
    """``outputs``, ``parameters`` or ``gradients``."""
    statistic: str
    tensors: dict[str, int]
    """Number of tensors of each kind in the log."""
    graphs: list[GraphRow]
    rows: list[MagnitudeRow]
    first_row: int
    """Position of the first row among the tensors of its kind, from 0."""
    steps: list[int]
    """First step of each column."""
    last_steps: list[int]
    joined_steps: list[int]
    total_steps: int
    classes: list[str]
    cells: list[list[int]]
    numbers: list[list[float | None]]
    """Largest value of the statistic in each cell, rounded to four digits; None if no element is finite."""
    launches: list[list[int]]
    """First launch of the worst class in each cell, of several that with the largest number; -1 if there is none."""
    launch_steps: list[list[int]]
    """Step of each of `launches`."""


@dataclass(frozen=True)
class WorstSite:
    """A launch site with an abnormal output."""

    site: int
    kernel: str
    graph: int
    health: Health
    cells: int
    """Number of steps in which its worst class was `health`."""
    first_step: int
    first_launch: int


@dataclass(frozen=True)
class ValueCurve:
    """Statistics of an argument over its launches."""

    log: int
    site: int
    argument: int
    item: int | None
    part: str | None
    moment: str
    name: str
    kernel: str
    dtype: str | None
    limit: float | None
    launch: list[int]
    step: list[int]
    columns: dict[str, list[int | float | None]]
    """For each statistic, its values in the order of `launch`."""
