"""Selects the reader for tensors of each device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from stepscope.tracer.inductor.stats_toolchain import without_torch_function
from stepscope.tracer.runtime.stats import ROW, Reader, StatsBlock
from stepscope.tracer.runtime.stats.cpu import CpuReader, ToolchainError, kernel
from stepscope.tracer.runtime.stats.torch_ops import TorchReader


def reader_for(tensors: Sequence[Tensor], most_bytes: int) -> Reader:
    """Return a reader of tensors like `tensors`, on any devices; tensors above `most_bytes` are sampled.

    Raises KeyError for a dtype that cannot be read; `parts` returns no such tensor.
    """
    with without_torch_function():
        devices = [tensor.device for tensor in tensors]
        kinds = list(dict.fromkeys(devices))
        if len(kinds) <= 1:
            return _reader(kinds[0].type if kinds else "cpu", tensors, most_bytes)
        places = {kind: [i for i, device in enumerate(devices) if device == kind] for kind in kinds}
        return MixedReader(
            [(_reader(kind.type, [tensors[i] for i in at], most_bytes), at) for kind, at in places.items()],
            len(tensors),
        )


def why_not_compiled() -> str | None:
    """Return why tensors on the CPU are read by torch's operations, or None; compiles at the first call."""
    try:
        kernel()
    except ToolchainError as error:
        return str(error)
    return None


def _reader(device: str, tensors: Sequence[Tensor], most_bytes: int) -> Reader:
    if device == "cuda":
        from stepscope.tracer.runtime.stats.cuda import CudaReader

        return CudaReader(tensors, most_bytes)
    if device == "cpu":
        try:
            return CpuReader(tensors, most_bytes)
        except ToolchainError:
            pass  # `why_not_compiled` returns the reason
    return TorchReader(tensors, most_bytes)


@dataclass(frozen=True)
class MixedBlock:
    """Rows of several blocks, each with the positions of its rows."""

    blocks: list[tuple[StatsBlock, list[int]]]
    n: int
    in_order: list[StatsBlock] | None
    """The blocks if their rows are consecutive, else None."""

    def rows(self) -> npt.NDArray[Any] | None:
        out = np.zeros(self.n, ROW)
        for block, places in self.blocks:
            rows = block.rows()
            if rows is None:
                return None
            out[places] = rows
        return out

    def wait(self) -> npt.NDArray[Any]:
        out = np.zeros(self.n, ROW)
        for block, places in self.blocks:
            out[places] = block.wait()
        return out


class MixedReader:
    looked_at: list[int]

    def __init__(self, readers: list[tuple[Reader, list[int]]], n: int) -> None:
        self._readers, self._n = readers, n
        self._is_in_order = [place for _, places in readers for place in places] == list(range(n))
        self.looked_at = [0] * n
        for reader, places in readers:
            for place, count in zip(places, reader.looked_at, strict=True):
                self.looked_at[place] = count

    def __call__(self, tensors: Sequence[Tensor]) -> MixedBlock:
        read = [(reader([tensors[i] for i in places]), places) for reader, places in self._readers]
        return MixedBlock(read, self._n, [block for block, _ in read] if self._is_in_order else None)
