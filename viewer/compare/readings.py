"""What is known of the tensors of a call, and whether two sides agree in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from stepscope.viewer.compare.rows import TOLERANCE, Numbers
from stepscope.viewer.graphs.rows import SourceLine

Hash = float | int | str | bool
State = Literal["equal", "differs", "unknown"]


class Reading(NamedTuple):
    """A tensor, with the hashes of DebugMode or with the statistics of a value row."""

    name: str
    dtype: str
    numel: int | None
    hashes: tuple[Hash, ...] = ()
    """Of DebugMode: a float is the L1 norm, an integer the result of `torch.hash_tensor`."""
    statistics: Numbers | None = None
    bounds: tuple[float, float] | None = None
    """Between them lies the L1 norm, as far as the statistics tell it; None if an element is not finite."""

    @property
    def is_known(self) -> bool:
        return bool(self.hashes) or self.statistics is not None

    @property
    def norm(self) -> float | None:
        return next((one for one in self.hashes if isinstance(one, float)), None)

    @property
    def numbers(self) -> Numbers:
        """Return what a comparison shows of the tensor."""
        if self.statistics is not None:
            return self.statistics
        norm = self.norm
        others = [str(one) for one in self.hashes if not isinstance(one, float)]
        return Numbers(
            self.dtype, self.numel or 0, None, None, None, None, None, None, None, None,
            None if norm is None else (norm, norm), ", ".join(others) or None,
        )  # fmt: skip


class Call(NamedTuple):
    """An operator or a kernel that ran, in the log of DebugMode or in a trace."""

    number: int
    """Its place in the log of DebugMode, or its launch in the trace."""
    name: str
    arguments: str | None
    """Their text in the log of DebugMode; None in a trace."""
    inputs: tuple[Reading, ...]
    outputs: tuple[Reading, ...]
    source: SourceLine | None
    step: int | None = None

    @property
    def operator(self) -> str:
        """Return the name without namespace and overload: ``addmm`` of ``aten::addmm.out`` and
        ``extern_kernels.addmm``."""
        if "::" in self.name:
            return self.name.partition("::")[2].partition(".")[0]
        parts = self.name.split(".")
        return parts[-2] if len(parts) > 1 and parts[-1] in ("default", "out") else parts[-1]


class Difference(NamedTuple):
    state: State
    relative: float | None
    """Of the norms: 0 if they are equal, None if they cannot be compared."""


def difference(left: Reading, right: Reading, tolerance: float | None) -> Difference:
    """Compare two tensors: by their hashes, which must be equal without a tolerance, or by the norm in the log of
    DebugMode and the bounds that the statistics of a trace give it."""
    if left.numel is not None and right.numel is not None and left.numel != right.numel:
        return Difference("differs", None)
    if left.hashes and right.hashes:
        return _of_hashes(left.hashes, right.hashes, tolerance)
    for norm, bounds, counts in ((left.norm, right.bounds, right), (right.norm, left.bounds, left)):
        if norm is not None and counts.statistics is not None:
            return _of_norm(norm, bounds, TOLERANCE if tolerance is None else tolerance)
    return Difference("unknown", None)


def _of_hashes(left: Sequence[Hash], right: Sequence[Hash], tolerance: float | None) -> Difference:
    if [type(one) for one in left] != [type(one) for one in right]:
        return Difference("unknown", None)
    pairs = list(zip(left, right, strict=True))
    norms = [(a, b) for a, b in pairs if isinstance(a, float) and isinstance(b, float)]
    others_equal = all(a == b for a, b in pairs if not isinstance(a, float))
    if any(math.isnan(a) != math.isnan(b) for a, b in norms):
        return Difference("differs", None)
    known = [(a, b) for a, b in norms if not math.isnan(a)]
    relative = max((_relative(a, b) for a, b in known), default=None)
    if others_equal and not relative:  # the norm of a tensor with a NaN tells nothing of its other elements
        return Difference("equal" if len(known) == len(norms) or len(norms) < len(pairs) else "unknown", relative)
    if tolerance is None:
        return Difference("differs", relative)
    if relative is None:
        return Difference("unknown", None)
    return Difference("differs" if relative > tolerance else "equal", relative)


def _of_norm(norm: float, bounds: tuple[float, float] | None, tolerance: float) -> Difference:
    if bounds is None or math.isnan(norm):
        both = bounds is None and not math.isfinite(norm)
        return Difference("unknown" if both else "differs", None)
    low, high = bounds
    nearest = min(max(norm, low), high)
    relative = _relative(norm, nearest)
    if relative > tolerance:
        return Difference("differs", relative)
    return Difference("equal" if high - low <= tolerance * high else "unknown", relative)


def _relative(left: float, right: float) -> float:
    if left == right:
        return 0.0
    far = abs(left - right) / max(abs(left), abs(right))
    return far if math.isfinite(far) else math.inf


def norm_bounds(statistics: Numbers, l2: float, largest: float) -> tuple[float, float] | None:
    """Return between which numbers the L1 norm of a tensor lies: it is known if all elements have one sign, and
    otherwise lies between the L2 norm and that times the root of the number of elements. None if an element is not
    finite. `l2` is the L2 norm and `largest` the largest magnitude."""
    numel, low, high, mean = statistics.numel, statistics.min, statistics.max, statistics.mean
    if statistics.nan or statistics.positive_infinity or statistics.negative_infinity:
        return None
    if numel == 0 or largest == 0:
        return 0.0, 0.0
    if low is None or high is None or mean is None:
        return 0.0, math.inf
    if low >= 0 or high <= 0:
        return abs(mean) * numel, abs(mean) * numel
    return max(l2, abs(mean) * numel, l2 * l2 / largest), l2 * math.sqrt(numel)
