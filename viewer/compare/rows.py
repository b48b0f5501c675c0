"""The comparison of two traces, or of two steps of a trace. Its fields are those of `stepscope compare --json`.

Sizes are in bytes, times in ns, and unknown values are null. Fields are added over time but never renamed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stepscope.viewer.compare.time_rows import Times
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.kernel_source.nondeterminism import Cause
from stepscope.viewer.text import formats

TOLERANCE = 1e-5
FORMAT: Literal["stepscope-compare/1"] = "stepscope-compare/1"


@dataclass(frozen=True)
class Wanted:
    """A side of a comparison that is asked for."""

    trace: list[str]
    """Names of the trace as they were given."""
    step: int | None = None
    """The only step that is compared; None if all are."""
    rank: int | None = None
    """The only rank that is compared; None if all are."""
    log: int | None = None
    """The only log that is compared, by its number in the trace; None if all are."""


@dataclass(frozen=True)
class Side:
    trace: list[str]
    """Names of the trace as they were given."""
    step: int | None
    """The only step that is compared; null if all are."""
    rank: int | None
    """The only rank that is compared; null if all are."""
    log: int | None
    """The only log that is compared, by its number in the trace; null if all are."""
    logs: list[str]
    graphs: int
    launches: int
    value_rows: int


@dataclass(frozen=True)
class GraphName:
    graph: int
    label: str
    """Compile id and phase."""
    frame: str | None


@dataclass(frozen=True)
class GraphPair:
    left: GraphName
    right: GraphName
    is_same_code: bool | None
    """Whether the generated code is equal apart from names of files and hashes; null if a log does not hold it."""
    added: int
    removed: int
    """Lines of the code in which the sides differ; a changed one counts as added and removed."""


@dataclass(frozen=True)
class KernelChange:
    """A launch site whose kernel or statement differs between the sides, or a call of which the arguments differ."""

    graph: str | None
    """Null beside a log of DebugMode. So are the sites."""
    kernel: str
    left_site: int | None
    right_site: int | None
    source: SourceLine | None
    lines: list[tuple[str, str]]
    """Changed lines of the generated code, left and right; a side that lacks the line has an empty text."""


@dataclass(frozen=True)
class Fact:
    """A difference of the runs that may explain other differences."""

    topic: Literal["version", "setting", "environment", "arguments", "machine", "compile", "kernel configuration"]
    name: str
    left: str | None
    right: str | None


@dataclass(frozen=True)
class WithoutPartner:
    """What only one side has."""

    side: Literal["left", "right"]
    what: Literal["log", "graph", "launch site", "call", "launch", "value row", "unreadable entry"]
    name: str
    count: int


@dataclass(frozen=True)
class Compared:
    """Numbers of pairs."""

    graphs: int
    calls: int
    launches: int
    value_rows: int
    """Pairs of rows whose statistics are known on both sides."""
    different_value_rows: int
    not_comparable: int
    """Pairs of rows that were not read on a side, or of which the sides read different samples."""
    by_digest: int
    """Those of `value_rows` that have a digest on both sides."""


@dataclass(frozen=True)
class Numbers:
    """The statistics of one tensor on one side."""

    dtype: str
    numel: int
    nan: int | None
    positive_infinity: int | None
    negative_infinity: int | None
    zero: int | None
    min: float | None
    max: float | None
    mean: float | None
    std: float | None
    norm: tuple[float, float] | None = None
    """The L1 norm, beside a log of DebugMode: between these numbers, which are equal if it is known."""
    hash: str | None = None
    """What else DebugMode logged as a hash."""


@dataclass(frozen=True)
class TensorDifference:
    """A tensor whose statistics differ."""

    name: str
    """Argument of the launch, or input of the call."""
    program_name: str | None
    """What the program calls an input or output of the graph, such as ``self.head.weight``; null if unknown."""
    moment: str
    item: int | None
    part: str | None
    relative: float | None
    """Largest relative difference of the minimum, maximum, mean and standard deviation, or of the norms beside a log of
    DebugMode; null if only counts differ."""
    left: Numbers
    right: Numbers

    @property
    def known_name(self) -> str:
        return formats.known_name(self.name, self.program_name)


@dataclass(frozen=True)
class Place:
    """A launch on both sides, or a call if a side is a log of DebugMode."""

    graph: str | None
    """Null if a side is a log of DebugMode, which has no graphs. So are the sites."""
    kernel: str
    left_site: int | None
    right_site: int | None
    left_launch: int
    """The number of the launch, or of the entry in a log of DebugMode."""
    right_launch: int
    left_step: int | None
    right_step: int | None
    source: SourceLine | None

    @property
    def noun(self) -> str:
        return "call" if self.graph is None else "launch"

    @property
    def of_graph(self) -> str:
        return "" if self.graph is None else f" of {self.graph}"


InputState = Literal["agree", "near", "differ", "unknown"]
"""``near``: they differ by less than the tolerance, and the outputs by less than a hundred times as much. ``unknown``:
not every input was read on both sides."""


@dataclass(frozen=True)
class LaunchDifference:
    """A launch whose outputs differ."""

    place: Place
    inputs: InputState
    outputs: list[TensorDifference]
    launches: int
    """Launches of this site of which the same holds."""


@dataclass(frozen=True)
class Nondeterministic:
    """A launch that wrote other bits although all tensors that it read, and its code, are equal on both sides."""

    place: Place
    buffers: list[str]
    causes: list[Cause]
    """What its code uses that can make results differ from run to run."""


@dataclass(frozen=True)
class InputDifference:
    """An input of a graph that differs before any launch of the call wrote it, with the first launch that reads it."""

    place: Place
    tensor: TensorDifference


@dataclass(frozen=True)
class Growth:
    """How a written buffer differs over all pairs of launches of a site, or of calls of an operator."""

    graph: str | None
    """Null beside a log of DebugMode. So is the site."""
    kernel: str
    buffer: str
    left_site: int | None
    launches: int
    different: int
    first_launch: int
    first_relative: float | None
    last_relative: float | None
    largest_relative: float | None


ComparedBy = Literal["digests", "digests and statistics", "statistics", "hashes", "norms"]
Verdict = Literal[
    "no difference", "input", "nondeterministic", "launch", "output", "code", "structure", "nothing compared"
]
"""What differs first: ``launch``, whose inputs agree; ``nondeterministic``, the same if digests prove it, its code
is equal, and the runs differ in nothing that may explain it; ``input`` of a graph; ``output``, a launch of which some
input is unknown, differs by less than the tolerance, or was changed after it was written. If no compared value differs:
``code``, or ``structure``, which is what has no partner."""


@dataclass(frozen=True)
class Comparison:
    format: Literal["stepscope-compare/1"]
    left: Side
    right: Side
    compared_by: ComparedBy
    """``digests``: every pair of value rows has digests on both sides, and equal ones mean equal bits. Equal statistics
    do not prove equal bits, and neither do equal ``hashes`` of two logs of DebugMode. ``norms``: the norm in a log of
    DebugMode, and what the statistics of a trace say of it."""
    by_bits: bool
    """Whether tensors with unequal digests differ, as without a tolerance that was given."""
    tolerance: float
    """Relative difference up to which minimum, maximum, mean and standard deviation count as equal."""
    verdict: Verdict
    sentence: str
    facts: list[Fact]
    kernels: list[KernelChange]
    graphs: list[GraphPair]
    without_partner: list[WithoutPartner]
    compared: Compared
    inputs: list[InputDifference]
    """Differing inputs of the first call in which any value differs, at most 100."""
    launches: list[LaunchDifference]
    """Launch sites whose inputs agree or are unknown and whose outputs differ, by first launch, at most 100; also that
    of the first difference, unless an input explains it."""
    nondeterministic: Nondeterministic | None
    """The first launch that differs, if its inputs are equal in every bit and its code is equal; null otherwise."""
    growth: list[Growth]
    """Written buffers that differ, by first launch, at most 1000."""
    times: Times | None
    """How the times of the runs compare, which is no part of the verdict; null if single steps are compared."""

    @property
    def kernel_changes(self) -> list[KernelChange]:
        """Return the changes of the generated code once each, although several sites may launch the kernel."""
        once = {(change.graph, change.kernel, tuple(change.lines)): change for change in reversed(self.kernels)}
        return list(reversed(once.values()))

    @property
    def noun(self) -> str:
        """Return what is compared: launches, or calls if a side is a log of DebugMode."""
        return "call" if self.compared_by in ("hashes", "norms") else "launch"

    @property
    def has_difference(self) -> bool:
        return self.verdict not in ("no difference", "nothing compared")
