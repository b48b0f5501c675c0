"""Computes statistics with torch's own operations, on machines without a compiler and devices without a reader.

It is as exact as the compiled reader and about ten times slower. Tensors of other devices are copied to the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepscope.tracer.inductor.stats_toolchain import plain_torch
from stepscope.tracer.runtime.stats import ROW, digest
from stepscope.tracer.runtime.stats.cpu import CpuBlock
from stepscope.tracer.runtime.stats.dtypes import KINDS, NEAR_OVERFLOW, SUBNORMAL, DtypeKind, tables
from stepscope.tracer.runtime.stats.layout import Layout, layout_of

CHUNK = 1 << 20
"""Number of elements per step, so that copies in float64 stay small."""
SIGNED = {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}


class TorchReader:
    """Reads tensors of fixed dtype, size and stride. Raises KeyError for a dtype that cannot be read."""

    looked_at: list[int]

    def __init__(self, tensors: Sequence[Tensor], most_bytes: int) -> None:
        with plain_torch():
            self._kinds = [KINDS[tensor.dtype] for tensor in tensors]
            self._layouts = [layout_of(tensor, most_bytes) for tensor in tensors]
        pairs = zip(self._layouts, self._kinds, strict=True)
        self.looked_at = [at.count * at.weight * kind.values for at, kind in pairs]

    def __call__(self, tensors: Sequence[Tensor]) -> CpuBlock:
        rows = np.zeros(len(tensors), ROW)
        with plain_torch():
            for row, tensor, kind, at in zip(rows, tensors, self._kinds, self._layouts, strict=True):
                row["first_bad"] = -1
                _read(tensor, kind, at, row)
        return CpuBlock(rows)


def _read(tensor: Tensor, kind: DtypeKind, at: Layout, row: Any) -> None:
    is_there = tensor.numel() == 0 or tensor.data_ptr() != 0
    flat = _flat(tensor.detach(), at) if is_there else tensor.new_empty(0)
    moments = Moments()
    seen = np.zeros(256, np.int64)
    for start in range(0, flat.numel(), CHUNK):
        chunk = flat[start : start + CHUNK].cpu()
        if kind.family == "float":
            _floats(chunk, kind, start, row, moments)
        elif kind.family == "integer":
            _integers(chunk, kind, start == 0, row, moments)
        else:
            _patterns(chunk, kind, start, row, seen)
    if kind.family == "pattern":
        _finish_patterns(seen, kind, row, moments)
    if is_there and at.weight == 1:
        row["digest"] = _digest(flat if not at.order else _flat(_in_memory_order(tensor.detach()), at), at.order)
    if row["first_bad"] >= 0:
        row["first_bad"] *= at.step
    row["min"], row["max"], row["mean"], row["std"] = moments.answer()


def _digest(flat: Tensor, order: int) -> int:
    total = 0
    for start in range(0, flat.numel(), CHUNK):  # a chunk has whole units
        chunk = flat[start : start + CHUNK].cpu().contiguous().view(torch.uint8).numpy()
        total += digest.sum_of(chunk, start * flat.itemsize // digest.UNIT_BYTES)
    return digest.finished(total, flat.numel() * flat.itemsize, order)


def _in_memory_order(tensor: Tensor) -> Tensor:
    """Return the tensor with its dimensions by decreasing stride."""
    return tensor.permute(sorted(range(tensor.dim()), key=lambda dim: -tensor.stride()[dim]))


def _flat(tensor: Tensor, at: Layout) -> Tensor:
    """Return the elements, or those of the sample, in row-major order; packed and 8-bit floats as bytes."""
    if KINDS[tensor.dtype].family == "pattern":
        tensor = tensor.view(torch.uint8)
    if at.step == 1:
        return tensor.reshape(-1)
    index = torch.arange(at.count, device=tensor.device) * at.step
    place = torch.zeros_like(index)
    for size, stride in reversed(at.logical):
        place += index % size * stride
        index = index // size
    reach = 1 + sum((size - 1) * stride for size, stride in at.logical)
    return torch.as_strided(tensor, (reach,), (1,)).index_select(0, place)


class Moments:
    """Count, mean and sum of squared differences, merged as in Chan, Golub, LeVeque 1983.

    Values are scaled by a power of two, so that squares of any float64 are finite.
    """

    def __init__(self) -> None:
        self.n, self.mean, self.m2, self.power = 0, 0.0, 0.0, 0
        self.low, self.high = math.inf, -math.inf

    def add(self, x: Tensor) -> None:
        """Add finite float64 numbers."""
        if not x.numel():
            return
        low, high = x.min().item(), x.max().item()
        largest = max(-low, high)
        power = math.frexp(largest)[1] if largest > 1e140 or 0 < largest < 1e-140 else 0
        scaled = torch.ldexp(torch.ldexp(x, torch.tensor(-power // 2)), torch.tensor(-power - (-power // 2)))
        scaled, half = scaled.double(), scaled.double()[0].item()
        mean = half + (scaled - half).mean().item()
        rest = scaled - mean
        m2 = max(0.0, (rest * rest).sum().item() - rest.sum().item() ** 2 / x.numel())
        self.merge(x.numel(), mean, m2, power)
        self.low, self.high = min(self.low, low), max(self.high, high)

    def merge(self, n: int, mean: float, m2: float, power: int = 0) -> None:
        if self.n == 0:
            self.n, self.mean, self.m2, self.power = n, mean, m2, power
            return
        top = max(self.power, power)
        mine, mine2 = math.ldexp(self.mean, self.power - top), math.ldexp(self.m2, 2 * (self.power - top))
        mean, m2 = math.ldexp(mean, power - top), math.ldexp(m2, 2 * (power - top))
        total, delta = self.n + n, mean - mine
        self.mean = mine + delta * (n / total)
        self.m2 = mine2 + m2 + delta * delta * (self.n / total) * n
        self.n, self.power = total, top

    def answer(self) -> tuple[float, float, float, float]:
        """Return minimum, maximum, mean and standard deviation; NaN if there is none."""
        if not self.n:
            return math.nan, math.nan, math.nan, math.nan
        mean = min(max(_ldexp(self.mean, self.power), self.low), self.high)
        std = _ldexp(math.sqrt(self.m2 / (self.n - 1)), self.power) if self.n > 1 else math.nan
        return self.low, self.high, mean, std


def _ldexp(x: float, power: int) -> float:
    try:
        return math.ldexp(x, power)
    except OverflowError:
        return math.copysign(math.inf, x)


def _floats(x: Tensor, kind: DtypeKind, start: int, row: Any, moments: Moments) -> None:
    bits = x.view(SIGNED[kind.bits])
    sizes = bits & ((1 << (kind.bits - 1)) - 1)
    infinite = ((1 << (kind.bits - 1 - kind.mantissa)) - 1) << kind.mantissa
    is_finite = sizes < infinite
    row["zero"] += int((sizes == 0).sum())
    row["subnormal"] += int(((sizes > 0) & (sizes < 1 << kind.mantissa)).sum())
    if math.isfinite(kind.near):
        near = infinite - (2 << kind.mantissa)
        row["near_overflow"] += int(((sizes >= near) & is_finite).sum())
    if not bool(is_finite.all()):
        row["nan"] += int((sizes > infinite).sum())
        row["positive_infinity"] += int((bits == infinite).sum())
        row["negative_infinity"] += int(((sizes == infinite) & (bits < 0)).sum())
        if row["first_bad"] < 0:
            row["first_bad"] = start + int((~is_finite).to(torch.uint8).argmax())
        x = x[is_finite]
    moments.add(x.double())


def _integers(x: Tensor, kind: DtypeKind, is_first: bool, row: Any, moments: Moments) -> None:
    if x.dtype is torch.bool:
        x = x.view(torch.uint8).ne(0).to(torch.uint8)
    row["zero"] += int((x.view(SIGNED[kind.bits]) == 0).sum())
    if x.dtype is torch.uint64:
        # Flipping the sign bit makes signed comparison give the unsigned order.
        ordered = x.view(torch.int64) ^ torch.iinfo(torch.int64).min
        low, high = int(ordered.min()) + 2**63, int(ordered.max()) + 2**63
        rest = (x.view(torch.int64) - (low - 2**64 if low >= 2**63 else low)).numpy().view(np.uint64)
    else:
        x = x.to(torch.int64)
        low, high = int(x.min()), int(x.max())
        rest = (x - low).numpy().view(np.uint64)
    old = int(row["exact_min"]), int(row["exact_max"])
    if kind.bits == 64 and kind.code == KINDS[torch.uint64].code:
        old = old[0] % 2**64, old[1] % 2**64
    least, most = (low, high) if is_first else (min(low, old[0]), max(high, old[1]))
    row["exact_min"], row["exact_max"] = (v - 2**64 if v >= 2**63 else v for v in (least, most))
    of_rest = Moments()
    of_rest.add(torch.from_numpy(rest.astype(np.float64)))
    moments.merge(of_rest.n, float(low) + of_rest.mean, of_rest.m2)
    moments.low, moments.high = min(moments.low, float(low)), max(moments.high, float(high))


def _patterns(x: Tensor, kind: DtypeKind, start: int, row: Any, seen: npt.NDArray[np.int64]) -> None:
    counts = torch.bincount(x, minlength=256).numpy()
    bad = ~np.isfinite(tables()[kind.table]["value"])
    if kind.values == 2:
        both = counts.reshape(16, 16)
        seen[:16] += both.sum(0) + both.sum(1)
        return
    seen += counts
    if row["first_bad"] < 0 and counts[bad].any():
        row["first_bad"] = start + int(bad[x.numpy()].argmax())


def _finish_patterns(seen: npt.NDArray[np.int64], kind: DtypeKind, row: Any, moments: Moments) -> None:
    values, flags = tables()[kind.table]["value"], tables()[kind.table]["flags"]
    row["nan"] = seen[np.isnan(values)].sum()
    row["positive_infinity"] = seen[values == math.inf].sum()
    row["negative_infinity"] = seen[values == -math.inf].sum()
    row["zero"] = seen[values == 0].sum()
    row["subnormal"] = seen[flags & SUBNORMAL != 0].sum()
    row["near_overflow"] = seen[flags & NEAR_OVERFLOW != 0].sum()
    for code in np.flatnonzero(np.isfinite(values) & (seen > 0)):
        moments.merge(int(seen[code]), float(values[code]), 0.0)
        moments.low, moments.high = min(moments.low, float(values[code])), max(moments.high, float(values[code]))
