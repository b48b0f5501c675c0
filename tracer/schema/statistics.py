"""Statistics of tensors: their names, labels, kinds and order, and the record that carries them."""

# Annotations are not postponed: those of `Statistics` are resolved from modules that inherit its fields.
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, get_type_hints

from stepscope.tracer.schema.record import Record


@dataclass(frozen=True)
class Statistic:
    """The properties of a statistic that tables, pages and scripts need."""

    label: str
    """Its name in headings and lists."""
    title: str = ""
    """Its name in the choices of a plot; the label if empty."""
    kind: Literal["number", "count", "nonfinite"] = "number"
    """A ``number`` that describes the finite elements, a ``count`` of some of them, or a count of ``nonfinite`` ones.
    """
    health: str | None = None
    """The class of health of the elements that it counts; None if it says nothing about their health."""
    is_recorded: bool = True
    """Whether the log has it. The others are computed when a log is read."""
    is_listed: bool = False
    """Whether it has a column of its own in the table of a buffer's versions."""


@dataclass
class Statistics:
    """Statistics of one tensor in the order in which pages show them; None if unknown.

    This is the vocabulary: tables, rows, headings, choices of plots and scripts follow from these fields and from the
    columns of `Values`. The class is not frozen because a page creates thousands of rows.
    """

    min: Annotated[int | float | None, Statistic("min", is_listed=True)]
    """The minimum of the finite elements; an exact int for integer types."""
    max: Annotated[int | float | None, Statistic("max", is_listed=True)]
    mean: Annotated[float | None, Statistic("mean", is_listed=True)]
    std: Annotated[float | None, Statistic("std", is_listed=True)]
    l2: Annotated[float | None, Statistic("L2", "L2 norm", is_recorded=False)]
    largest: Annotated[int | float | None, Statistic("largest", "largest magnitude", is_recorded=False, is_listed=True)]
    nan: Annotated[int | None, Statistic("NaN", kind="nonfinite", health="nan")]
    positive_infinity: Annotated[int | None, Statistic("+inf", kind="nonfinite", health="positive_infinity")]
    negative_infinity: Annotated[int | None, Statistic("−inf", kind="nonfinite", health="negative_infinity")]
    zero: Annotated[int | None, Statistic("zero", "zeros", kind="count", health="zero")]
    near_overflow: Annotated[int | None, Statistic("near overflow", kind="count", health="extreme")]
    subnormal: Annotated[int | None, Statistic("subnormal", kind="count", health="extreme")]


STATISTICS: dict[str, Statistic] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(Statistics, include_extras=True).items()
}
NUMBERS = tuple(name for name, one in STATISTICS.items() if one.kind == "number")
COUNTS = tuple(name for name, one in STATISTICS.items() if one.kind != "number")
NONFINITE = tuple(name for name, one in STATISTICS.items() if one.kind == "nonfinite")
RECORDED_NUMBERS = tuple(name for name in NUMBERS if STATISTICS[name].is_recorded)


@dataclass(frozen=True)
class Sparse:
    """A column whose value in most rows is 0, or unknown if the field says so; it has the other rows and values."""

    row: list[int]
    value: list[int]


@dataclass(frozen=True)
class Exact:
    """The rows whose extremes `Values.min` and `Values.max` cannot represent exactly: integers and float64."""

    row: list[int]
    min: list[Any]
    max: list[Any]


@dataclass(frozen=True)
class Elements:
    """The rows of small tensors all of whose elements were recorded (``--elements``)."""

    row: list[int]
    value: list[list[Any]]
    """The elements as numbers or booleans in row-major order; ``nan``, ``inf`` and ``-inf`` are strings. Floats have
    the fewest digits that identify them."""


@dataclass(frozen=True)
class Values(Record):
    """Statistics of tensors, as columns. The rows of a call follow one another in the order of its layout.

    `min`, `max`, `mean` and `std` (unbiased) are over the finite elements, and None if no element is finite. They
    have 7 significant digits, mean and std at least 5. The L2 norm and the largest magnitude follow from them.
    """

    KIND: ClassVar[str] = "values"

    call: list[int]
    layout: list[int]
    """The value layout of each call."""
    min: list[float | None]
    max: list[float | None]
    mean: list[float | None]
    std: list[float | None]
    nan: Sparse
    positive_infinity: Sparse
    negative_infinity: Sparse
    zero: Sparse
    near_overflow: Sparse
    """The number of finite values in the top two binades of a 16-bit or 8-bit floating-point type."""
    subnormal: Sparse
    first_bad: Sparse
    """The flat index of the first NaN or infinity. A row is missing if every element is finite, or if the index is
    unknown."""
    exact: Exact
    at_least: list[int] | None = None
    """The rows in which the numbers of NaN and infinities are lower bounds. It is not None if PyTorch's debug printer
    printed the statistics, which do not count zeros, overflows and subnormals."""
    elements: Elements | None = None
    """The elements of small tensors; None if none were recorded."""
    digest: str | None = None
    """The digests of the bits that were read, as base64 of 8 bytes a row, little-endian; 0 if unknown. Equal digests of
    rows of one dtype and size mean equal bits; of samples, equal bits of what was read. None if none were recorded."""
