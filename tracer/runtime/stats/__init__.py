"""Computes statistics of tensors in one pass over their elements.

`parts` returns the tensors that can be read of an argument; `reader_for` creates a reader for tensors of fixed dtype,
size and stride; calling the reader returns a `StatsBlock`, whose rows may arrive later (CUDA).
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
        ("first_bad", "i8"),  # flat index in logical (row-major) order of the first NaN or infinity, or -1
        *((name, "f8") for name in RECORDED_NUMBERS),  # of finite elements; NaN if there are too few
        ("exact_min", "i8"),  # of integers and bool; uint64 as int64 with the same bits; else 0
        ("exact_max", "i8"),
        ("digest", "u8"),  # of the bits that were read (`digest`); 0 if it is unknown
    ]
)
"""Statistics of one tensor: a numpy record dtype in native byte order. `Row` of cpu_kernel.cpp has the same fields."""
NOT_READ = np.array(
    [tuple(-1 if name == "first_bad" else np.nan if name in RECORDED_NUMBERS else 0 for name in ROW.names or ())], ROW
)
"""The row of a tensor that was not read."""


@dataclass(frozen=True)
class Part:
    """One strided tensor to be read for an argument, or the reason why it cannot be read."""

    name: str | None
    """``real``, ``imag``, ``values``, or the attribute of a subclass's inner tensor; None for the argument itself."""
    tensor: Tensor | None
    """A dense strided tensor that has memory; None if `skipped` is set."""
    dtype: str
    """Dtype of the argument as the user sees it, such as ``float8_e4m3fn``."""
    numel: int
    skipped: str | None = None


class StatsBlock(Protocol):
    """The rows of one reading."""

    def rows(self) -> npt.NDArray[Any] | None:
        """Return one `ROW` per tensor in the reader's order, or None if a device has not finished. Never waits."""

    def wait(self) -> npt.NDArray[Any]:
        """Wait for the device and return the rows."""


class Reader(Protocol):
    """Reads tensors like those it was created for; the caller guarantees the same dtype, size, stride and device."""

    looked_at: list[int]
    """Number of elements that each row covers; fewer than numel in a strided sample."""

    def __call__(self, tensors: Sequence[Tensor]) -> StatsBlock: ...
