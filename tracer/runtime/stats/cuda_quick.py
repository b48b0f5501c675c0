"""Loads the compiled code that starts readings on a CUDA device (cuda_readings.cpp)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from stepscope.tracer.inductor.device_launch import Loaded, raw_stream_of
from stepscope.tracer.runtime import compiled
from stepscope.tracer.runtime.stats.snapshots import DeviceBlock, Snapshot

SOURCE = Path(__file__).with_name("cuda_readings.cpp")


class OpenRows(Protocol):
    """Rows of an arena that points use without its lock, on one stream."""

    def open(self, stream: int, used: int, snapshot: Snapshot, /) -> None:
        """Let points use the rows after the first `used` ones; they are part of `snapshot`."""

    def close(self) -> int:
        """Let points use no more rows; return how many are used, or -1 if no point could use any."""


class Point(Protocol):
    """Reads the tensors of a point of a wrapper."""

    def __call__(self, tensors: Sequence[Any], /) -> tuple[object, Any] | None: ...


def open_rows(base: int, row_bytes: int, rows: int) -> OpenRows | None:
    """Return the rows of an arena at the address `base`, not yet open; None if the code cannot be compiled."""
    library = _library()
    made: OpenRows | None = None if library is None else library.OpenRows(base, row_bytes, rows)
    return made


def make_point(
    group: object,
    reader: Callable[[Sequence[Any]], object] | None,
    device: int,
    rows: OpenRows | None,
    loaded: Loaded | None,
    *,
    programs: int,
    counts: Sequence[int],
    takes: int,
    table: int,
    rest: Sequence[int],
) -> Point | None:
    """Return what does the same as `reader` with one launch of a loaded kernel, and returns its block after `group`.

    Where only Python can read, the point calls `reader`, or returns None if that is None.
    The kernel takes the slots, `table`, `takes` addresses and `rest`. `counts` are the elements that are read of each
    tensor. Returns None if the code cannot be compiled, or the driver alone cannot start the kernel.
    """
    library = _library()
    if library is None or loaded is None or rows is None:
        return None
    made: Point = library.Point(
        group, reader, device, rows, loaded.function, loaded.shared_bytes, loaded.threads, programs,
        counts, takes, table, rest,
    )  # fmt: skip
    return made


def _library() -> Any:
    try:
        return compiled.load("stepscope_cuda_readings", SOURCE, _set_up)
    except RuntimeError:
        return None


def _set_up(library: Any) -> None:
    driver = ctypes.CDLL("libcuda.so.1")
    addresses = [ctypes.cast(f, ctypes.c_void_p).value for f in (driver.cuLaunchKernel, driver.cuStreamIsCapturing)]
    library.set_up(*addresses, raw_stream_of(), DeviceBlock)
