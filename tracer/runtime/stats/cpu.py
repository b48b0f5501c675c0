"""Computes statistics of tensors on the CPU with one call of compiled C++ per reading."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, get_num_threads

from stepscope.tracer.inductor.stats_toolchain import build_library, function_mode_active, without_torch_function
from stepscope.tracer.runtime import compiled
from stepscope.tracer.runtime.stats import ROW
from stepscope.tracer.runtime.stats.digest import signed
from stepscope.tracer.runtime.stats.dtypes import KINDS, tables
from stepscope.tracer.runtime.stats.layout import Layout, layout_of

SOURCE = Path(__file__).with_name("cpu_kernel.cpp")
BIG = 128 * 1024
"""Minimum number of elements for OpenMP threads; for fewer, waking the threads takes longer."""
KEEPS_GIL = 128 * 1024
"""Maximum bytes to read without releasing the GIL, about 10 µs; releasing it could take longer."""


class ToolchainError(RuntimeError):
    """Raised if the compiled library is not available."""


class Kernel:
    """The compiled library with ``stepscope_stats``, which is at the end of cpu_kernel.cpp."""

    def __init__(self) -> None:
        path = str(build_library(SOURCE.read_text("utf-8")))
        self.with_gil = ctypes.PyDLL(path).stepscope_stats
        self.without_gil = ctypes.CDLL(path).stepscope_stats
        self.tables = tables()


def kernel() -> Kernel:
    """Return the library, compiled at the first call (seconds if not cached). Raises ToolchainError at each call."""
    try:
        found: Kernel = compiled.once("stepscope_stats", Kernel)
    except RuntimeError as error:
        raise ToolchainError(f"statistics are not compiled: {error}") from None
    return found


class _Reader(ctypes.Structure):
    """The struct `Reader` of cpu_kernel.cpp."""

    _fields_ = (
        ("descs", ctypes.POINTER(ctypes.c_int64)),
        ("starts", ctypes.POINTER(ctypes.c_int64)),
        ("tensors", ctypes.c_int64),
        ("tables", ctypes.c_void_p),
        ("big", ctypes.c_int64),
    )


class CpuBlock:
    """Rows that are available at once."""

    __slots__ = ("_buffer",)

    def __init__(self, buffer: Any) -> None:
        self._buffer = buffer

    def rows(self) -> npt.NDArray[Any]:
        return np.frombuffer(self._buffer, ROW)

    def wait(self) -> npt.NDArray[Any]:
        return self.rows()


class CpuReader:
    """Reads tensors of fixed dtype, size and stride; several threads may call it at once.

    A tensor whose memory has been freed (``storage.resize_(0)``) gets a row without counts, and NaN.
    Raises ToolchainError if the kernel cannot be compiled and KeyError for a dtype that cannot be read.
    """

    looked_at: list[int]

    def __init__(self, tensors: Sequence[Tensor], most_bytes: int) -> None:
        found = kernel()
        layouts = [layout_of(tensor, most_bytes) for tensor in tensors]
        kinds = [KINDS[tensor.dtype] for tensor in tensors]
        self.looked_at = [at.count * at.weight * kind.values for at, kind in zip(layouts, kinds, strict=True)]
        numbers: list[int] = []
        starts = []
        for kind, at in zip(kinds, layouts, strict=True):
            starts.append(len(numbers))
            numbers += descriptor(kind.code, max(kind.table, 0), at)
        n = len(layouts)
        self._rows = ctypes.c_char * (n * ROW.itemsize)
        self._pack = struct.Struct(f"{n}P").pack
        self._tables = found.tables
        self._reader = _Reader(
            (ctypes.c_int64 * len(numbers))(*numbers), (ctypes.c_int64 * n)(*starts), n, found.tables.ctypes.data, BIG
        )
        self.address = ctypes.addressof(self._reader)
        self.kernel_address = ctypes.cast(found.with_gil, ctypes.c_void_p).value
        self.tensors = n
        self.has_big = any(at.count >= BIG for at in layouts)
        """Whether a tensor is read by several threads."""
        size = sum(at.count * tensor.itemsize for at, tensor in zip(layouts, tensors, strict=True))
        self.keeps_gil = size <= KEEPS_GIL
        self._read = found.with_gil if self.keeps_gil else found.without_gil

    def __call__(self, tensors: Sequence[Tensor]) -> CpuBlock:
        if function_mode_active():
            with without_torch_function():
                addresses = [tensor.data_ptr() for tensor in tensors]
        else:
            addresses = [tensor.data_ptr() for tensor in tensors]
        rows = self._rows()
        self._read(ctypes.byref(self._reader), self._pack(*addresses), get_num_threads() if self.has_big else 1, rows)
        return CpuBlock(rows)


def descriptor(code: int, table: int, at: Layout) -> list[int]:
    """Return a tensor's description for the kernel: the fields of `Field` in cpu_kernel.cpp, then the pairs."""
    is_ordered = at.weight == 1 and at.memory == at.logical
    fields = [
        code,
        at.count,
        at.step,
        at.weight,
        int(is_ordered),
        len(at.memory),
        len(at.logical),
        table,
        signed(at.order),
    ]
    return [*fields, *(number for pair in (*at.memory, *at.logical) for number in pair)]
