"""A Triton kernel that measures the errors of a buffer, which takes thirty of torch's operations.

Each operation takes tens of microseconds on the host, and a judged step on a GPU waits for the host alone.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
from triton import language as tl

from stepscope.tracer.inductor.device_launch import Launcher, raw_stream_of

BLOCK, PROGRAMS, LONGEST_ROW = 1024, 1056, 1 << 16
"""Elements that a program reads at once, the largest number of programs, and the longest row that one program reads."""
WORDS, ROWS = 8, 64
"""Numbers of one measurement, and the measurements whose memory is allocated at once."""
DTYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}

_launchers: dict[tuple[int, Any, Weights], Launcher] = {}
_free: dict[tuple[int, int], list[Any]] = {}
"""Zeros that no measurement has used, by device and stream."""


class Weights(NamedTuple):
    """What errors are divided by.

    With c, e and r the compiled value, that of eager code and the one in float64, |c - r| is divided by `explained`
    times the largest |e - r| of the row, `share` times |r| and `least`, and |e - r| by `beside` times the largest
    |c - r| of the row, `size` times its largest |r| and `least_off`.
    """

    explained: float
    share: float
    least: float
    beside: float
    size: float
    least_off: float


class Measured(NamedTuple):
    """What the kernel measures: sums over the elements, and the largest quotients."""

    error_by_r: float
    eager_by_r: float
    """The sum of (e - r) r."""
    rounding_by_r: float
    """The sum of what rounding r to the dtype changes, times r."""
    error: float
    """The sum of squares of c - r."""
    eager: float
    r: float
    ratio: float
    off: float
    """The largest quotient of |e - r|."""


@triton.jit(do_not_specialize=list(range(6)))
def measure(
    found: tl.int64, compiled: tl.int64, eager: tl.int64, double: tl.int64, rows: tl.int64, width: tl.int64,
    DTYPE: tl.constexpr, EXPLAINED: tl.constexpr, SHARE: tl.constexpr, LEAST: tl.constexpr, BESIDE: tl.constexpr,
    SIZE: tl.constexpr, LEAST_OFF: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add the sums to `found`, and keep the largest quotients as the bits of float64."""
    c_at, e_at = compiled.to(tl.pointer_type(DTYPE)), eager.to(tl.pointer_type(DTYPE))
    r_at = double.to(tl.pointer_type(tl.float64))
    lane = tl.arange(0, BLOCK).to(tl.int64)
    none = tl.zeros((BLOCK,), tl.float64)
    error_by_r, eager_by_r, rounding_by_r, of_error, of_eager, of_r = none, none, none, none, none, none
    ratio, off = none, none
    for row in range(tl.program_id(0).to(tl.int64), rows, tl.num_programs(0).to(tl.int64)):
        largest_error, largest_eager, largest_r = none, none, none
        for start in range(0, width, BLOCK):
            place, mask = row * width + start + lane, start + lane < width
            r = tl.load(r_at + place, mask=mask, other=0)
            c = tl.load(c_at + place, mask=mask, other=0).to(tl.float32).to(tl.float64) - r
            e = tl.load(e_at + place, mask=mask, other=0).to(tl.float32).to(tl.float64) - r
            error_by_r += c * r
            eager_by_r += e * r
            rounding_by_r += (r.to(tl.float32).to(DTYPE).to(tl.float32).to(tl.float64) - r) * r
            of_error += c * c
            of_eager += e * e
            of_r += r * r
            largest_error = tl.maximum(largest_error, tl.abs(c))
            largest_eager = tl.maximum(largest_eager, tl.abs(e))
            largest_r = tl.maximum(largest_r, tl.abs(r))
        explained = tl.max(largest_eager, 0) * EXPLAINED + LEAST
        beside = tl.max(largest_error, 0) * BESIDE + tl.max(largest_r, 0) * SIZE + LEAST_OFF
        for start in range(0, width, BLOCK):
            place, mask = row * width + start + lane, start + lane < width
            r = tl.load(r_at + place, mask=mask, other=0)
            c = tl.load(c_at + place, mask=mask, other=0).to(tl.float32).to(tl.float64) - r
            e = tl.load(e_at + place, mask=mask, other=0).to(tl.float32).to(tl.float64) - r
            ratio = tl.maximum(ratio, tl.abs(c) / (tl.abs(r) * SHARE + explained))
            off = tl.maximum(off, tl.abs(e) / beside)
    sums, bits = found.to(tl.pointer_type(tl.float64)), found.to(tl.pointer_type(tl.int64))
    tl.atomic_add(sums, tl.sum(error_by_r, 0), sem="relaxed")
    tl.atomic_add(sums + 1, tl.sum(eager_by_r, 0), sem="relaxed")
    tl.atomic_add(sums + 2, tl.sum(rounding_by_r, 0), sem="relaxed")
    tl.atomic_add(sums + 3, tl.sum(of_error, 0), sem="relaxed")
    tl.atomic_add(sums + 4, tl.sum(of_eager, 0), sem="relaxed")
    tl.atomic_add(sums + 5, tl.sum(of_r, 0), sem="relaxed")
    tl.atomic_max(bits + 6, tl.max(ratio, 0).to(tl.int64, bitcast=True), sem="relaxed")
    tl.atomic_max(bits + 7, tl.max(off, 0).to(tl.int64, bitcast=True), sem="relaxed")


def measured(compiled: Any, eager: Any, double: Any, weights: Weights) -> Measured | None:
    """Measure the errors of a buffer. A sum is not finite if any value is not.

    A row is the last dimension, or the whole tensor if that has one element. Returns None for other dtypes than those
    of `DTYPES`, for longer rows than `LONGEST_ROW`, and where Triton cannot compile the kernel.
    """
    width = compiled.shape[-1] if compiled.ndim and compiled.shape[-1] > 1 else compiled.numel()
    if compiled.dtype not in DTYPES or eager.dtype != compiled.dtype or double.dtype != torch.float64:
        return None
    if not 0 < width <= LONGEST_ROW or eager.shape != compiled.shape or double.shape != compiled.shape:
        return None
    if torch.cuda.current_device() == compiled.device.index:
        return _started(compiled.contiguous(), eager.contiguous(), double.contiguous(), width, weights)
    with torch.cuda.device(compiled.device):
        return _started(compiled.contiguous(), eager.contiguous(), double.contiguous(), width, weights)


def _started(c: Any, e: Any, r: Any, width: int, weights: Weights) -> Measured | None:
    device, rows = c.device.index, c.numel() // width
    launcher = _launchers.get((device, c.dtype, weights))
    if launcher is None:
        constants = {name.upper(): number for name, number in weights._asdict().items()}
        try:
            launcher = Launcher(measure, {"DTYPE": DTYPES[c.dtype], **constants, "BLOCK": BLOCK}, num_warps=4)
        except Exception:
            return None
        _launchers[device, c.dtype, weights] = launcher
    stream = raw_stream_of()(device)
    free = _free.setdefault((device, stream), [])
    if not free:
        free += torch.zeros(ROWS, WORDS, dtype=torch.float64, device=c.device).unbind()
    found = free.pop()
    launcher(min(rows, PROGRAMS), stream, found.data_ptr(), c.data_ptr(), e.data_ptr(), r.data_ptr(), rows, width)
    return Measured(*found.tolist())
