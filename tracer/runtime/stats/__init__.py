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

if TYPE_CHECKING:
    from torch import Tensor

ROW = np.dtype(
    [
        ("nan", "i8"),
        ("positive_infinity", "i8"),
        ("negative_infinity", "i8"),
        ("zero", "i8"),
        ("near_overflow", "i8"),  # finite, in the top two binades of a 16- or 8-bit floating-point type
        ("subnormal", "i8"),
        ("first_bad", "i8"),  # flat index in logical (row-major) order of the first NaN or infinity, or -1
        ("min", "f8"),  # min, max, mean, std: over the finite elements; NaN if there are none
        ("max", "f8"),
        ("mean", "f8"),
        ("std", "f8"),  # unbiased, as torch.std; NaN for fewer than two finite elements
        ("exact_min", "i8"),  # of integers and bool; uint64 as int64 with the same bits; else 0
        ("exact_max", "i8"),
    ]
)
"""Statistics of one tensor: a numpy record dtype of 104 bytes in native byte order."""


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
