"""Records of the values of tensors; `stepscope.tracer.schema.records` names them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

Moment = Literal["before", "after"]
OF_THE_CALL = -1
"""`ValueLayout.site` of a row for an input of the call that no launch site names."""


@dataclass(frozen=True)
class ValueLayout:
    """The description of a call's value rows, as columns. Calls with the same rows share a layout."""

    KIND: ClassVar[str] = "value_layout"

    layout: int
    graph: int
    site: list[int]
    """The launch site; -1 for an input of the call that no launch site names."""
    argument: list[int]
    """The index into the site's `arguments`, or into `Graph.inputs` for an input of the call."""
    moment: list[Moment]
    item: list[int | None]
    """The position within a list argument; None for other arguments."""
    part: list[str | None]
    """The part of the tensor: ``real``, ``imag``, ``values``, or the name of a subclass's inner tensor; None for the
    whole tensor."""
    dtype: list[str]
    numel: list[int]
    looked_at: list[int]
    """The number of elements that the statistics cover; if it is less than `numel`, they are a strided sample."""
    skipped: list[str | None]
    """Why the row has no statistics; None if it has statistics."""
    first: int = 0
    """The number of rows of the call in earlier records. With blocking launches, readings of selected kernels are
    written at once."""


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
class Values:
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
    """The path of the file, relative to the folder of the log."""
    dtype: str
    size: list[int]
    tensor_bytes: int
    sha256: str
    """The SHA-256 digest of the file."""
