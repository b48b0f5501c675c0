"""Statistics of tensors in one pass: what is read of a tensor, by whom, and the row that comes of it.

`parts` says what can be read of any argument; `reader_for` prepares a reader of tensors whose dtype, size and
stride stay as they are; calling the reader reads them and gives a `StatsBlock`, whose rows may come later (CUDA).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from stepscope.tracer.schema.statistics import COUNTS, RECORDED_NUMBERS

if TYPE_CHECKING:
    from torch import Tensor

ROW = np.dtype(
    [
        *((name, "i8") for name in COUNTS),
        ("first_bad", "i8"),  # flat index in logical (row-major) order of the first NaN or infinity; -1: none
        *((name, "f8") for name in RECORDED_NUMBERS),  # NaN where there are no finite elements; std: for fewer than two
        ("exact_min", "i8"),  # of integers and bool; uint64 by its bits; else 0
        ("exact_max", "i8"),
    ]
)
"""Statistics of one tensor: numpy's record dtype, native byte order; `Row` of cpu_kernel.cpp has the same fields."""
NOT_READ = np.array(
    [tuple(-1 if name == "first_bad" else np.nan if name in RECORDED_NUMBERS else 0 for name in ROW.names or ())], ROW
)
"""The row of a tensor that was not read."""


@dataclass(frozen=True)
class Part:
    """One strided tensor to be read of an argument, or why nothing can be."""

    name: str | None
    """``real``, ``imag``, ``values``, the attribute of a subclass's inner tensor; None: the argument itself."""
    tensor: Tensor | None
    """Dense and strided, on memory; None with `skipped`."""
    dtype: str
    """``float32``, ``float8_e4m3fn``, ...: of the argument as the user knows it."""
    numel: int
    skipped: str | None = None


class StatsBlock(Protocol):
    """Rows of one reading."""

    def rows(self) -> npt.NDArray[Any] | None:
        """One `ROW` per tensor in the reader's order; None while a device has not finished. Never waits."""

    def wait(self) -> npt.NDArray[Any]:
        """The rows, after waiting for the device."""


class Reader(Protocol):
    """Reads tensors like those it was made for; the caller answers for dtype, size, stride and device."""

    looked_at: list[int]
    """Elements that each row is over; fewer than numel: a strided sample."""

    def __call__(self, tensors: Sequence[Tensor]) -> StatsBlock: ...
