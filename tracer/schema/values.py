"""Records of what tensors held. They are part of `stepscope.tracer.schema.records`, which names them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

Moment = Literal["before", "after"]
OF_THE_CALL = -1
"""In `ValueLayout.site`: the row is about an input of the call that no launch site names."""


@dataclass(frozen=True)
class ValueLayout:
    """What the value rows of a call are about, as columns; calls that run alike share a layout."""

    KIND: ClassVar[str] = "value_layout"

    layout: int
    graph: int
    site: list[int]
    """-1: the row is about an input of the call, which no launch site names."""
    argument: list[int]
    """Index into the site's `arguments`; of an input of the call into `Graph.inputs`."""
    moment: list[Moment]
    item: list[int | None]
    """Position within a list argument."""
    part: list[str | None]
    """Which part of the tensor: ``real``, ``imag``, ``values``, the name of a subclass's inner tensor; None: all."""
    dtype: list[str]
    numel: list[int]
    looked_at: list[int]
    """Elements that the statistics are over; fewer than `numel`: a strided sample."""
    skipped: list[str | None]
    """Why the row has no statistics; None: it has."""
    first: int = 0
    """So many rows of the call stand in earlier records: with blocking launches, readings of chosen kernels are written
    at once."""


@dataclass(frozen=True)
class Sparse:
    """A column that is 0 (or, where it says so, unknown) in most rows: the others."""

    row: list[int]
    value: list[int]


@dataclass(frozen=True)
class Exact:
    """Rows whose smallest and largest value `Values.min` and `Values.max` cannot hold: integers, float64."""

    row: list[int]
    min: list[Any]
    max: list[Any]


@dataclass(frozen=True)
class Elements:
    """Rows of which all elements were kept, as ``--elements`` asks for those of small tensors."""

    row: list[int]
    value: list[list[Any]]
    """Numbers and booleans in row-major order; ``nan``, ``inf`` and ``-inf`` as texts. Floats carry as many digits as
    tell them apart."""


@dataclass(frozen=True)
class Values:
    """Statistics of tensors, as columns; the rows of a call follow one another in the order of its layout.

    Over the finite elements: `min`, `max`, `mean`, `std` (unbiased); None where there are none. Floats carry
    7 significant digits, mean and std at least 5. L2 norm and largest magnitude follow from these.
    """

    KIND: ClassVar[str] = "values"

    call: list[int]
    layout: list[int]
    """Per call."""
    min: list[float | None]
    max: list[float | None]
    mean: list[float | None]
    std: list[float | None]
    nan: Sparse
    positive_infinity: Sparse
    negative_infinity: Sparse
    zero: Sparse
    near_overflow: Sparse
    """Finite values in the top two binades of a 16- or 8-bit floating-point type."""
    subnormal: Sparse
    first_bad: Sparse
    """Flat index of the first NaN or infinity; no row: every element is finite, or it is not known."""
    exact: Exact
    at_least: list[int] | None = None
    """Not None: PyTorch's debug printer printed the statistics, which count no zeros, overflows and subnormals. In
    these rows there are so many NaN and infinities at least."""
    elements: Elements | None = None
    """None: of no row."""


@dataclass(frozen=True)
class SavedTensor:
    """A tensor was written to a file beside the log."""

    KIND: ClassVar[str] = "saved_tensor"

    call: int
    site: int
    argument: int
    item: int | None
    moment: Moment
    file: str
    """Relative to the folder of the log."""
    dtype: str
    size: list[int]
    tensor_bytes: int
    sha256: str
    """Of the file."""
