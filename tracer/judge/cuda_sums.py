"""A Triton kernel that computes the sums of up to 8 tensors, as `sums` defines them."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
from triton import language as tl

from stepscope.tracer.inductor.device_launch import Launcher, raw_stream_of

TAKES, BLOCK, PROGRAMS = 8, 2048, 264
"""Tensors of one launch, words that a program reads at once, and the largest number of programs for a tensor."""
ROWS = 512
"""Sums whose memory is allocated at once."""

_launchers: dict[int, Launcher] = {}


@triton.jit(do_not_specialize=list(range(2 * TAKES + 1)))
def add_words(
    sums: tl.int64,
    a0: tl.int64, a1: tl.int64, a2: tl.int64, a3: tl.int64, a4: tl.int64, a5: tl.int64, a6: tl.int64, a7: tl.int64,
    n0: tl.int64, n1: tl.int64, n2: tl.int64, n3: tl.int64, n4: tl.int64, n5: tl.int64, n6: tl.int64, n7: tl.int64,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Add the words of the tensor that the second number of the program names to its sum."""
    addresses = (a0, a1, a2, a3, a4, a5, a6, a7)
    counts = (n0, n1, n2, n3, n4, n5, n6, n7)
    number = tl.program_id(1)
    address, count = a0, n0
    for other in tl.static_range(1, 8):
        address = tl.where(number == other, addresses[other], address)
        count = tl.where(number == other, counts[other], count)
    words = address.to(tl.pointer_type(tl.int32))
    total = tl.zeros((BLOCK,), tl.int64)
    lane = tl.arange(0, BLOCK).to(tl.int64)
    first = tl.program_id(0).to(tl.int64) * BLOCK
    for start in range(first, count, tl.num_programs(0).to(tl.int64) * BLOCK):
        place = start + lane
        total += tl.load(words + place, mask=place < count, other=0).to(tl.int64) * (2 * place + 1)
    if first < count:
        tl.atomic_add(sums.to(tl.pointer_type(tl.int64)) + number, tl.sum(total, 0), sem="relaxed")


class CudaSums:
    """The sums of tensors on one device."""

    def __init__(self, device: int) -> None:
        """Compile and load the kernel. Raises what Triton raises."""
        self._device, self._raw_stream = device, raw_stream_of()
        self._rows: list[Any] = []
        """Zeros that no sum has used, from the last one to the first."""
        self._stream = -1
        if device not in _launchers:
            with torch.cuda.device(device):
                _launchers[device] = Launcher(add_words, {"BLOCK": BLOCK}, num_warps=8)
        self._launcher = _launchers[device]

    def of(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the sums of contiguous tensors, which consist of words of 4 bytes, on the current stream."""
        if torch.cuda.current_device() != self._device:
            with torch.cuda.device(self._device):
                return self.of(tensors)
        found: list[Any] = []
        for first in range(0, len(tensors), TAKES):
            found += self._start(tensors[first : first + TAKES])
        return found

    def _start(self, tensors: Sequence[Any]) -> list[Any]:
        stream = self._raw_stream(self._device)
        if stream != self._stream or len(self._rows) < len(tensors):
            self._stream = stream
            self._rows = list(torch.zeros(ROWS, dtype=torch.int64, device=tensors[0].device).unbind())[::-1]
        found = [self._rows.pop() for _ in tensors]
        counts, padding = [one.numel() * one.element_size() // 4 for one in tensors], [0] * (TAKES - len(tensors))
        programs = min(max(-(-max(counts) // BLOCK), 1), PROGRAMS)
        addresses = [one.data_ptr() for one in tensors]
        launcher = self._launcher
        launcher.start(
            programs, len(tensors), 1, stream, *launcher.prefix, found[0].data_ptr(), *addresses, *padding, *counts,
            *padding, *launcher.tail,
        )  # fmt: skip
        return found
